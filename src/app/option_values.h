// Options as text with their origin, and typed readers that collect every fault instead of stopping at the
// first.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lariat {

// What the user gave, by long flag name without dashes. Flags win over the config file.
class OptionValues {
 public:
  struct Value {
    std::string text;
    std::string origin;  // "--threads", or "lariat.toml: threads"
  };
  // Keeps the first value set: the command line is read before the file.
  void set(const std::string& name, std::string text, std::string origin);
  const Value* find(std::string_view name) const;
  // What was given and is no option at all; told with the faults of those that are.
  void add_misfit(std::string fault) { misfits_.push_back(std::move(fault)); }
  const std::vector<std::string>& misfits() const { return misfits_; }

 private:
  std::map<std::string, Value, std::less<>> values_;
  std::vector<std::string> misfits_;
};

// Faults of a configuration, reported together (exit code 2).
class Faults {
 public:
  explicit Faults(const OptionValues& given) : faults_(given.misfits()) {}
  void add(std::string fault) { faults_.push_back(std::move(fault)); }
  bool empty() const { return faults_.empty(); }
  // kInvalidArgument with one line a fault.
  Error error() const;

 private:
  std::vector<std::string> faults_;
};

struct IntRange {
  int64_t min = 0;
  int64_t max = INT64_MAX;
};

int64_t read_int(const OptionValues& v, std::string_view name, int64_t fallback, IntRange range,
                 Faults& faults);
// Seconds, fractions allowed, in [min, 1e6].
double read_seconds(const OptionValues& v, std::string_view name, double fallback, double min,
                    Faults& faults);
// In [min, max].
double read_number(const OptionValues& v, std::string_view name, double min, double max, Faults& faults);
// 0 for "auto"; else a count of bytes with an optional suffix K, M, G, T (KiB and so on; "GiB" and "GB" are
// both 2^30).
int64_t read_bytes_or_auto(const OptionValues& v, std::string_view name, Faults& faults);
// Index into `choices`.
int read_choice(const OptionValues& v, std::string_view name, std::initializer_list<std::string_view> choices,
                int fallback, Faults& faults);
// "3,1"
std::vector<int32_t> read_int_list(const OptionValues& v, std::string_view name, IntRange range,
                                   Faults& faults);
std::string read_text(const OptionValues& v, std::string_view name, std::string_view fallback);
bool read_flag(const OptionValues& v, std::string_view name);

// "4096", "4K", "1.5GiB". nullopt if it is none of these or does not fit in 63 bits.
std::optional<int64_t> parse_bytes(std::string_view text);
std::optional<int64_t> parse_int(std::string_view text);
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace lariat
