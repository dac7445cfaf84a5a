// Who computes how much of a prompt, and whether one rank holds up the others. docs/design.md §2.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "placement/placement.h"

namespace lariat {

// By cp index: the part of all positions that it computes, and with it of the work: products go by the
// position, and causal attention too, since every rank's positions are spread evenly over the prompt. Sums
// to 1.
std::vector<double> work_shares(const Placement& store, int32_t duplicates);

// The cp index that finishes last where ranks are equally fast.
struct Brake {
  int32_t cp_index = 0;
  double share = 0;
  double speed = 0;  // of a prompt, against equal shares; below 1
};

// nullopt where no rank takes more than a tenth longer than with equal shares. Bug: no shares.
std::optional<Brake> find_brake(std::span<const double> shares);

}  // namespace lariat
