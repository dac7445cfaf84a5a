// Rotary frequencies of a config, and their cosines and sines at a position.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "model/config.h"

namespace lariat {

struct RopeTable {
  std::vector<float> inv_freq;    // [D/2], radians per position, pair 0 first
  float attention_factor = 1.0f;  // on every cosine and sine (yarn; 1 otherwise)
};

// Computed in double and rounded once to f32. Bug: head_dim odd or not positive.
// Source: transformers 5, modeling_rope_utils.py; YaRN: Peng et al. 2023, section 3.
RopeTable make_rope_table(const RopeConfig& rope, int64_t head_dim);

// cos, sin [D/2]: of pos * inv_freq[i], times attention_factor. The angle is a product of doubles, so
// position 131071 is as exact as position 1, and every rank that computes a position gets the same bits.
void rope_cos_sin(const RopeTable& table, TokenPos pos, std::span<float> cos, std::span<float> sin);

}  // namespace lariat
