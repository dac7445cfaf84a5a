// What `lariat plan` and serving say of a setting that cannot be had. docs/design.md §7.
#pragma once

#include <string>

namespace lariat {

struct Refusal {
  std::string setting;  // the flag at fault, without dashes
  std::string reason;   // with the numbers that decided
  std::string nearest;  // what would work
  friend bool operator==(const Refusal&, const Refusal&) = default;
};

}  // namespace lariat
