#include "placement/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace lariat {
namespace {

Error bad(std::string message, std::string param) {
  return make_error(Errc::kInvalidArgument, std::move(message), std::move(param));
}

}  // namespace

Result<Placement> Placement::create(std::vector<int32_t> pattern, int32_t interleave) {
  if (pattern.empty()) return bad("the placement pattern is empty", "rank-shares");
  if (pattern.size() > size_t{kPatternMax})
    return bad(
        fmt::format("a placement pattern has at most {} entries, this one {}", kPatternMax, pattern.size()),
        "rank-shares");
  if (interleave < 1)
    return bad(fmt::format("interleave must be at least 1, not {}", interleave), "interleave");
  const int32_t entries = static_cast<int32_t>(pattern.size());
  if (interleave > kPeriodMax / entries)
    return bad(
        fmt::format("interleave {} times {} pattern entries is a period of more than {} tokens; at most "
                    "{} with this pattern",
                    interleave, entries, kPeriodMax, kPeriodMax / entries),
        "interleave");

  Placement p;
  p.interleave_ = interleave;
  const auto [low, high] = std::minmax_element(pattern.begin(), pattern.end());
  if (*low < 0 || *high >= entries)
    return bad(
        fmt::format("a pattern of {} entries names stripe {}; stripes are 0 and up, each named at least "
                    "once",
                    entries, *low < 0 ? *low : *high),
        "rank-shares");
  p.offsets_.resize(static_cast<size_t>(*high) + 1);
  p.slot_in_period_.reserve(static_cast<size_t>(entries) * static_cast<size_t>(interleave));
  for (int32_t entry = 0; entry < entries; ++entry) {
    auto& offsets = p.offsets_[static_cast<size_t>(pattern[static_cast<size_t>(entry)])];
    for (int32_t i = 0; i < interleave; ++i) {
      p.slot_in_period_.push_back(static_cast<int32_t>(offsets.size()));
      offsets.push_back(entry * interleave + i);
    }
  }
  for (size_t s = 0; s < p.offsets_.size(); ++s)
    if (p.offsets_[s].empty())
      return bad(fmt::format("stripe {} of {} is not in the placement pattern", s, p.offsets_.size()),
                 "rank-shares");
  p.pattern_ = std::move(pattern);
  return p;
}

Result<Placement> Placement::equal(int32_t stripes, int32_t interleave) {
  if (stripes < 1 || stripes > kPatternMax)
    return bad(fmt::format("stripes must be 1..{}, not {}", kPatternMax, stripes), "ranks");
  std::vector<int32_t> pattern(static_cast<size_t>(stripes));
  std::iota(pattern.begin(), pattern.end(), 0);
  return create(std::move(pattern), interleave);
}

Result<Placement> Placement::shares(std::span<const int32_t> shares, int32_t interleave) {
  if (shares.empty()) return bad("no shares given", "rank-shares");
  int64_t divisor = 0;
  for (const int32_t share : shares) {
    if (share < 1) return bad(fmt::format("a share must be at least 1, not {}", share), "rank-shares");
    divisor = std::gcd(divisor, int64_t{share});
  }
  int64_t total = 0;
  for (const int32_t share : shares) total += share / divisor;
  if (total > kPatternMax)
    return bad(fmt::format("shares make a pattern of {} entries, at most {}: use rounder shares", total,
                           kPatternMax),
               "rank-shares");

  // Each turn every stripe earns its share, and the richest pays the total; ties go to the lowest stripe.
  std::vector<int64_t> credit(shares.size(), 0);
  std::vector<int32_t> pattern;
  pattern.reserve(static_cast<size_t>(total));
  for (int64_t turn = 0; turn < total; ++turn) {
    for (size_t s = 0; s < shares.size(); ++s) credit[s] += shares[s] / divisor;
    const auto richest = std::max_element(credit.begin(), credit.end());
    *richest -= total;
    pattern.push_back(static_cast<int32_t>(richest - credit.begin()));
  }
  return create(std::move(pattern), interleave);
}

StripeIndex Placement::owner(TokenPos pos) const {
  const int32_t offset = pos.get() % period();
  return StripeIndex(pattern_[static_cast<size_t>(offset / interleave_)]);
}

LocalSlot Placement::local_slot(TokenPos pos) const {
  const int32_t offset = pos.get() % period();
  const int32_t turn = pos.get() / period();
  return LocalSlot(turn * slots_per_period(owner(pos)) + slot_in_period_[static_cast<size_t>(offset)]);
}

TokenPos Placement::position(StripeIndex stripe, LocalSlot slot) const {
  const int32_t per_period = slots_per_period(stripe);
  const int64_t turn = slot.get() / per_period;
  const int64_t pos = turn * period() + offsets(stripe)[static_cast<size_t>(slot.get() % per_period)];
  LARIAT_CHECK(pos <= std::numeric_limits<int32_t>::max(), "slot {} is past the last position", slot.get());
  return TokenPos(static_cast<int32_t>(pos));
}

int64_t Placement::local_count(StripeIndex stripe, int64_t length) const {
  LARIAT_CHECK(length >= 0, "length {}", length);
  const auto own = offsets(stripe);
  const int64_t whole = length / period() * slots_per_period(stripe);
  const auto rest = static_cast<int32_t>(length % period());
  return whole + (std::lower_bound(own.begin(), own.end(), rest) - own.begin());
}

int32_t Placement::slots_per_period(StripeIndex stripe) const {
  return static_cast<int32_t>(offsets(stripe).size());
}

std::span<const int32_t> Placement::offsets(StripeIndex stripe) const {
  LARIAT_CHECK(stripe.get() >= 0 && stripe.get() < stripes(), "stripe {} of {}", stripe.get(), stripes());
  return offsets_[static_cast<size_t>(stripe.get())];
}

int32_t Placement::round_page_tokens(int32_t page_tokens) const {
  LARIAT_CHECK(page_tokens >= 1, "page_tokens {}", page_tokens);
  const int64_t rounded = (int64_t{page_tokens} + period() - 1) / period() * period();
  LARIAT_CHECK(rounded <= std::numeric_limits<int32_t>::max(), "page_tokens {}", page_tokens);
  return static_cast<int32_t>(rounded);
}

int32_t Placement::page_slots(StripeIndex stripe, int32_t page_tokens) const {
  LARIAT_CHECK(page_tokens > 0 && page_tokens % period() == 0, "{} tokens a page, period {}", page_tokens,
               period());
  return page_tokens / period() * slots_per_period(stripe);
}

}  // namespace lariat
