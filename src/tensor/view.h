// A typed, shaped look at memory somebody else owns. Row-major and contiguous; strides live in op arguments.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"
#include "tensor/dtype.h"

namespace lariat {

class Shape {
 public:
  static constexpr int kRankMax = 4;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    LARIAT_CHECK(dims.size() <= kRankMax, "rank {}", dims.size());
    for (const int64_t d : dims) dims_[static_cast<size_t>(rank_++)] = d;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const {
    LARIAT_CHECK(i >= 0 && i < rank_, "dimension {} of {}", i, rank_);
    return dims_[static_cast<size_t>(i)];
  }
  void push_back(int64_t dim) {
    LARIAT_CHECK(rank_ < kRankMax, "rank {}", rank_);
    dims_[static_cast<size_t>(rank_++)] = dim;
  }
  // Product of the dimensions; 1 for rank 0.
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
    return n;
  }
  // "[2, 3]"
  std::string str() const;
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kRankMax> dims_{};
  int rank_ = 0;
};

struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t bytes() const { return shape.elements() * static_cast<int64_t>(dtype_size(dtype)); }
};

}  // namespace lariat
