// Test helpers: safetensors bytes by hand, and a folder that goes away.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace lariat::test {

// The length prefix, `header` as it is, then `data`.
inline std::string raw_safetensors(const std::string& header, const std::string& data) {
  const uint64_t n = header.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + header + data;
}

struct F32Tensor {
  std::string name;
  std::vector<int64_t> shape;
  float fill = 0;
};

// A well-formed file of f32 tensors in the given order, element i of a tensor = fill + i.
inline std::string f32_safetensors(const std::vector<F32Tensor>& tensors) {
  std::string header = "{", data;
  for (const F32Tensor& t : tensors) {
    int64_t n = 1;
    std::string shape;
    for (const int64_t d : t.shape) {
      n *= d;
      shape += (shape.empty() ? "" : ",") + std::to_string(d);
    }
    const size_t begin = data.size();
    for (int64_t i = 0; i < n; ++i) {
      const float v = t.fill + static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&v), 4);
    }
    header += (header.size() > 1 ? "," : "") + ("\"" + t.name + "\":{\"dtype\":\"F32\",\"shape\":[" + shape) +
              "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  while (header.size() % 8 != 0) header += " ";
  return raw_safetensors(header, data);
}

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lariat_test_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lariat::test
