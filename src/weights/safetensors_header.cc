#include "weights/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "weights/problems.h"

namespace lariat {
namespace {

using Tensor = SafetensorsFile::Tensor;

// The header has one fixed form, {name: {dtype, shape, data_offsets}, "__metadata__": {string: string}}, so
// the parse is a small state machine; anything else ends it, which also bounds the depth.
class HeaderSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool start_object(std::size_t) override {
    if (where_ == kStart) return go(kTop);
    if (where_ == kTop && name_ == "__metadata__") {
      if (std::exchange(metadata_seen_, true)) return fail("duplicate key \"__metadata__\"");
      return go(kMetadata);
    }
    if (where_ == kTop) {
      tensors.emplace_back().name = name_;
      seen_ = 0;
      return go(kTensor);
    }
    return fail(place() + ": an object where none belongs");
  }
  bool end_object() override {
    if (where_ == kTensor && seen_ != (kDtype | kShapeField | kOffsetsField)) {
      return fail(place() + ": needs dtype, shape and data_offsets");
    }
    return go(where_ == kTop ? kEnd : kTop);
  }
  bool key(string_t& key) override {
    if (where_ == kTop) name_ = key;
    if (where_ != kTensor) return true;
    field_ = field_of(key);
    if (field_ == 0) return fail(place() + ": unknown key \"" + printable(key) + "\"");
    if (seen_ & field_) return fail(place() + ": duplicate key \"" + key + "\"");
    seen_ |= field_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (where_ == kTensor && field_ == kShapeField) return go(kShape);
    if (where_ == kTensor && field_ == kOffsetsField) {
      offsets_ = 0;
      return go(kOffsets);
    }
    return fail(place() + ": an array where none belongs");
  }
  bool end_array() override {
    if (where_ == kOffsets && offsets_ != 2) return fail(place() + ": data_offsets needs two numbers");
    return go(kTensor);
  }
  bool string(string_t& value) override {
    if (where_ == kMetadata) return true;
    if (where_ != kTensor || field_ != kDtype) return fail(place() + ": a string where none belongs");
    tensors.back().dtype_text = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (where_ == kShape) return dimension(value);
    if (where_ == kOffsets && offsets_ < 2) {
      (offsets_++ == 0 ? tensors.back().begin : tensors.back().end) = value;
      return true;
    }
    return fail(place() + ": a number where none belongs");
  }
  bool number_integer(number_integer_t) override { return fail(place() + ": negative number"); }
  bool number_float(number_float_t, const string_t& text) override {
    return fail(place() + ": \"" + printable(text) + "\" is not an integer of 64 bits");
  }
  bool null() override { return fail(place() + ": null where none belongs"); }
  bool boolean(bool) override { return fail(place() + ": a boolean where none belongs"); }
  bool binary(binary_t&) override { return fail("binary value"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail("invalid JSON at byte " + std::to_string(position));
  }

  std::vector<Tensor> tensors;
  std::string fault;

 private:
  enum Where { kStart, kTop, kTensor, kShape, kOffsets, kMetadata, kEnd };
  enum Field : unsigned { kDtype = 1, kShapeField = 2, kOffsetsField = 4 };

  static unsigned field_of(std::string_view key) {
    if (key == "dtype") return kDtype;
    if (key == "shape") return kShapeField;
    if (key == "data_offsets") return kOffsetsField;
    return 0;
  }
  bool go(Where where) {
    where_ = where;
    return true;
  }
  bool fail(std::string text) {
    fault = std::move(text);
    return false;
  }
  std::string place() const {
    if (where_ == kStart || where_ == kEnd) return "header";
    return "\"" + printable(name_) + "\"";
  }
  bool dimension(uint64_t value) {
    std::vector<int64_t>& shape = tensors.back().shape;
    if (shape.size() == SafetensorsFile::kRankMax) return fail(place() + ": more than 16 dimensions");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return fail(place() + ": dimension " + std::to_string(value) + " is out of range");
    }
    shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  Where where_ = kStart;
  std::string name_;
  unsigned field_ = 0;
  unsigned seen_ = 0;
  int offsets_ = 0;
  bool metadata_seen_ = false;
};

}  // namespace

Result<std::vector<Tensor>> parse_safetensors_header(std::string_view json) {
  if (json.empty() || json.front() != '{') {
    return make_error(Errc::kCorruptData, "the header does not start with '{'");
  }
  // The JSON reader takes NUL for the end of its input and would ignore what follows.
  if (json.find('\0') != std::string_view::npos) {
    return make_error(Errc::kCorruptData, "the header contains a NUL byte");
  }
  HeaderSax sax;
  if (!nlohmann::json::sax_parse(json, &sax)) return make_error(Errc::kCorruptData, sax.fault);
  return std::move(sax.tensors);
}

}  // namespace lariat
