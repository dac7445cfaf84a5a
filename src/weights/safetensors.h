// Reader of one safetensors file: an 8-byte header length, a JSON header, the data. The file is hostile.
// Format: huggingface/safetensors README.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/problems.h"
#include "base/result.h"
#include "tensor/buffer.h"
#include "tensor/view.h"
#include "weights/mapped_file.h"

namespace lariat {

class SafetensorsFile {
 public:
  static constexpr size_t kHeaderBytesMax = 100'000'000;  // the reference implementation's cap
  static constexpr size_t kRankMax = 16;

  struct Tensor {
    std::string name;
    std::string dtype_text;  // as the file spells it: "BF16"
    std::vector<int64_t> shape;
    size_t begin = 0, end = 0;        // bytes in the data part
    const std::byte* data = nullptr;  // aligned to the element; nullptr if DType has no such type
    DType dtype = DType::kF32;        // if data
    bool readable = true;             // its entry says what it must
  };

  // Checks everything before a tensor is handed out: header length against the file and the cap, syntax,
  // duplicate names, element types, shape products, byte ranges against shapes, and that the ranges cover the
  // data without overlap or hole. kCorruptData with the file and every fault's tensor name (bounded).
  // Allocates in proportion to the header, plus copies of tensors whose place in the file is not aligned to
  // their element (old writers); copied_bytes() counts those.
  static Result<SafetensorsFile> create(MappedFile file);
  // The same, with the faults of entries in `problems` and the file nevertheless there for a look at its
  // entries: no tensor of it can be found if there are any. An error only if there is no header to look at.
  static Result<SafetensorsFile> inspect(MappedFile file, Problems& problems);

  // Sorted by name.
  std::span<const Tensor> tensors() const { return tensors_; }
  const Tensor* find_entry(std::string_view name) const;
  // nullopt if absent, or present with a type or rank that a view cannot carry (see unusable()).
  std::optional<ConstView> find(std::string_view name) const;
  // The type that an entry claims; nullopt if DType has no such type.
  static std::optional<DType> claimed_dtype(const Tensor& tensor);
  std::string unusable(std::string_view name) const;

  size_t data_bytes() const { return data_bytes_; }
  size_t copied_bytes() const { return copied_bytes_; }
  const MappedFile& file() const { return file_; }
  void release(std::string_view name) const;

 private:
  SafetensorsFile() = default;
  Status place(std::span<const std::byte> data);

  MappedFile file_;
  std::vector<Tensor> tensors_;
  std::vector<Buffer> copies_;
  size_t data_bytes_ = 0;
  size_t copied_bytes_ = 0;
};

}  // namespace lariat
