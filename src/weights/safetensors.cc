#include "weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/problems.h"
#include "weights/safetensors_header.h"

namespace lariat {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is used in place");

using Tensor = SafetensorsFile::Tensor;

constexpr std::string_view kDamaged = "damaged safetensors file";

struct FileType {
  std::string_view text;
  unsigned bits;
  std::optional<DType> dtype;  // none: a legal type that nothing here computes with
};

constexpr FileType kTypes[] = {{"F32", 32, DType::kF32}, {"BF16", 16, DType::kBF16},
                               {"F16", 16, DType::kF16}, {"I8", 8, DType::kI8},
                               {"U8", 8, DType::kU8},    {"I32", 32, DType::kI32},
                               {"I64", 64, DType::kI64}, {"BOOL", 8, DType::kBool},
                               {"F64", 64, {}},          {"I16", 16, {}},
                               {"U16", 16, {}},          {"U32", 32, {}},
                               {"U64", 64, {}},          {"C64", 64, {}},
                               {"F8_E4M3", 8, {}},       {"F8_E5M2", 8, {}},
                               {"F8_E8M0", 8, {}},       {"F8_E4M3FNUZ", 8, {}},
                               {"F8_E5M2FNUZ", 8, {}},   {"F6_E2M3", 6, {}},
                               {"F6_E3M2", 6, {}},       {"F4", 4, {}}};

const FileType* find_type(std::string_view text) {
  for (const FileType& t : kTypes) {
    if (t.text == text) return &t;
  }
  return nullptr;
}

std::string quoted(const Tensor& t) {
  return "\"" + printable(t.name) + "\"";
}

// Bytes of `shape` elements of `bits` each; nullopt if that overflows or is no whole number of bytes.
std::optional<uint64_t> shape_bytes(const std::vector<int64_t>& shape, unsigned bits) {
  uint64_t n = bits;
  for (const int64_t d : shape) {
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(d), &n)) return std::nullopt;
  }
  if (n % 8 != 0) return std::nullopt;
  return n / 8;
}

void check_tensor(Tensor& t, size_t data_bytes, Problems& problems) {
  if (!t.readable) return;
  const FileType* type = find_type(t.dtype_text);
  t.readable = type != nullptr;
  if (!type) return problems.add(quoted(t) + ": unknown dtype \"" + printable(t.dtype_text) + "\"");
  if (t.begin > t.end || t.end > data_bytes) {
    return problems.add(quoted(t) + ": bytes " + std::to_string(t.begin) + ".." + std::to_string(t.end) +
                        " are not within the " + std::to_string(data_bytes) + " bytes of data");
  }
  const auto bytes = shape_bytes(t.shape, type->bits);
  if (!bytes) return problems.add(quoted(t) + ": its shape is out of range");
  if (*bytes != t.end - t.begin) {
    problems.add(quoted(t) + ": dtype and shape make " + std::to_string(*bytes) + " bytes, its range has " +
                 std::to_string(t.end - t.begin));
  }
}

// The ranges must tile the data: an overlap could alias two weights, a hole could hide anything.
void check_tiling(const std::vector<Tensor>& tensors, size_t data_bytes, Problems& problems) {
  std::vector<const Tensor*> order;
  order.reserve(tensors.size());
  for (const Tensor& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  size_t covered = 0;
  for (const Tensor* t : order) {
    if (t->begin < covered) {
      problems.add(quoted(*t) + ": overlaps another tensor at byte " + std::to_string(t->begin));
    } else if (t->begin > covered) {
      problems.add(quoted(*t) + ": " + std::to_string(t->begin - covered) +
                   " bytes before it belong to none");
    }
    covered = std::max(covered, t->end);
  }
  if (covered < data_bytes) {
    problems.add("the last " + std::to_string(data_bytes - covered) + " bytes belong to no tensor");
  }
}

void check_tensors(std::vector<Tensor>& sorted, size_t data_bytes, Problems& problems) {
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i > 0 && sorted[i].name == sorted[i - 1].name) problems.add(quoted(sorted[i]) + ": appears twice");
    check_tensor(sorted[i], data_bytes, problems);
  }
  // With a damaged range every neighbour would be accused too.
  if (problems.empty()) check_tiling(sorted, data_bytes, problems);
}

Result<std::string_view> header_text(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) {
    return make_error(Errc::kCorruptData,
                      "a safetensors file has at least 8 bytes, this has " + std::to_string(bytes.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  if (length > SafetensorsFile::kHeaderBytesMax) {
    return make_error(Errc::kCorruptData, "header of " + std::to_string(length) + " bytes, at most " +
                                              std::to_string(SafetensorsFile::kHeaderBytesMax) +
                                              " are accepted");
  }
  if (length > bytes.size() - 8) {
    return make_error(Errc::kCorruptData, "header of " + std::to_string(length) +
                                              " bytes, the file has only " +
                                              std::to_string(bytes.size() - 8) + " after the length");
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + 8, length);
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::create(MappedFile file) {
  const std::string label = file.label();
  Problems problems;
  LARIAT_ASSIGN(SafetensorsFile result, inspect(std::move(file), problems));
  if (!problems.empty()) return problems.error(Errc::kCorruptData, kDamaged).in(label);
  return result;
}

Result<SafetensorsFile> SafetensorsFile::inspect(MappedFile file, Problems& problems) {
  const std::string label = file.label();
  const auto header = header_text(file.bytes());
  if (!header.ok()) return header.error().in(label);
  auto tensors = parse_safetensors_header(*header, problems);
  if (!tensors.ok()) return tensors.error().in(label);
  std::sort(tensors->begin(), tensors->end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  const std::span<const std::byte> data = file.bytes().subspan(8 + header->size());
  check_tensors(*tensors, data.size(), problems);

  SafetensorsFile result;
  result.file_ = std::move(file);
  result.tensors_ = std::move(*tensors);
  result.data_bytes_ = data.size();
  if (!problems.empty()) return result;
  if (Status placed = result.place(data); !placed.ok()) return placed.error().in(label);
  return result;
}

std::optional<DType> SafetensorsFile::claimed_dtype(const Tensor& tensor) {
  const FileType* type = find_type(tensor.dtype_text);
  return type ? type->dtype : std::nullopt;
}

// Points every tensor at its bytes, or at an aligned copy of them.
Status SafetensorsFile::place(std::span<const std::byte> data) {
  for (Tensor& t : tensors_) {
    const FileType* type = find_type(t.dtype_text);
    if (!type->dtype) continue;
    t.dtype = *type->dtype;
    t.data = data.data() + t.begin;
    if (reinterpret_cast<uintptr_t>(t.data) % dtype_size(t.dtype) == 0 || t.begin == t.end) continue;
    LARIAT_ASSIGN(Buffer copy, Buffer::allocate(t.end - t.begin));
    std::memcpy(copy.data(), t.data, copy.size());
    copied_bytes_ += copy.size();
    t.data = copy.data();
    copies_.push_back(std::move(copy));
  }
  return Ok{};
}

const Tensor* SafetensorsFile::find_entry(std::string_view name) const {
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const Tensor& t, std::string_view n) { return t.name < n; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

std::optional<ConstView> SafetensorsFile::find(std::string_view name) const {
  const Tensor* t = find_entry(name);
  if (!t || !t->data || t->shape.size() > static_cast<size_t>(Shape::kRankMax)) return std::nullopt;
  ConstView view{t->data, t->dtype, {}};
  for (const int64_t d : t->shape) view.shape.push_back(d);
  return view;
}

std::string SafetensorsFile::unusable(std::string_view name) const {
  const Tensor* t = find_entry(name);
  if (!t) return {};
  if (!claimed_dtype(*t)) return "stored as " + t->dtype_text + ", which is not supported";
  if (t->shape.size() > static_cast<size_t>(Shape::kRankMax)) {
    return "has " + std::to_string(t->shape.size()) + " dimensions, at most 4 are supported";
  }
  return {};
}

void SafetensorsFile::release(std::string_view name) const {
  const Tensor* t = find_entry(name);
  if (!t) return;
  const size_t header_end = file_.bytes().size() - data_bytes_;
  file_.drop_pages(file_.bytes().subspan(header_end + t->begin, t->end - t->begin));
}

}  // namespace lariat
