#include "plan/work_share.h"

#include <algorithm>

namespace lariat {

std::vector<double> work_shares(const Placement& store, int32_t duplicates) {
  LARIAT_CHECK(duplicates >= 1 && store.stripes() % duplicates == 0, "{} stripes, {} duplicates",
               store.stripes(), duplicates);
  std::vector<double> shares(static_cast<size_t>(store.stripes() / duplicates), 0.0);
  for (const int32_t stripe : store.pattern())
    shares[static_cast<size_t>(stripe / duplicates)] += 1.0 / static_cast<double>(store.pattern().size());
  return shares;
}

std::optional<Brake> find_brake(std::span<const double> shares) {
  constexpr double kWorthAWord = 1.1;
  LARIAT_CHECK(!shares.empty(), "no shares");
  const auto most = std::max_element(shares.begin(), shares.end());
  const double equal = 1.0 / static_cast<double>(shares.size());
  if (*most <= kWorthAWord * equal) return std::nullopt;
  return Brake{static_cast<int32_t>(most - shares.begin()), *most, equal / *most};
}

}  // namespace lariat
