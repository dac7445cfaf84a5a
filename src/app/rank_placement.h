// Which ranks, and which of their options, place positions: what can be had, and of what cannot the nearest.
#pragma once

#include <vector>

#include "app/options.h"
#include "base/result.h"
#include "model/config.h"
#include "placement/placement.h"
#include "plan/layout.h"

namespace lariat {

// What the layout makes of the model; check_layout must have passed.
LayoutShape shape_of(const DecoderConfig& config, const Layout& layout);

// Positions over the stripe group: equal, or by shares of the cp ranks. The error's param names the flag.
Result<Placement> stripe_placement(const LayoutOptions& options, const LayoutShape& shape);

// The given options, or where their ranks cannot be placed the nearest that can; `refusals` gets why.
LayoutOptions placeable(const DecoderConfig& config, LayoutOptions options, std::vector<Refusal>& refusals);

// Options that exclude each other, whatever the model.
std::vector<Refusal> contradictions(const LayoutOptions& options);

}  // namespace lariat
