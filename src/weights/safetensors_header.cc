#include "weights/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/problems.h"

namespace lariat {
namespace {

using Tensor = SafetensorsFile::Tensor;

// The header has one fixed form, {name: {dtype, shape, data_offsets}, "__metadata__": {string: string}}, so
// the parse is a small state machine. A value that does not belong is named and left out with all it holds;
// the parser keeps a bit a level, so depth is bounded by the header's bytes.
class HeaderSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderSax(Problems& faults) : problems(faults) {}

  bool start_object(std::size_t) override {
    if (left_out_ > 0) return leave_out();
    if (where_ == kStart) return go(kTop);
    if (where_ == kTop && name_ == "__metadata__") {
      if (std::exchange(metadata_seen_, true)) note("duplicate key \"__metadata__\"");
      return go(kMetadata);
    }
    if (where_ == kTop) {
      tensors.emplace_back().name = name_;
      seen_ = 0;
      field_ = 0;
      return go(kTensor);
    }
    if (!unknown_field()) note(place() + ": an object where none belongs");
    return leave_out();
  }
  bool end_object() override {
    if (left_out_ > 0) return come_back();
    if (where_ == kTensor && seen_ != (kDtype | kShapeField | kOffsetsField)) {
      note(place() + ": needs dtype, shape and data_offsets");
    }
    return go(where_ == kTop ? kEnd : kTop);
  }
  bool key(string_t& key) override {
    if (left_out_ > 0) return true;
    if (where_ == kTop) name_ = key;
    if (where_ != kTensor) return true;
    field_ = field_of(key);
    if (field_ == 0) note(place() + ": unknown key \"" + printable(key) + "\"");
    if (seen_ & field_) note(place() + ": duplicate key \"" + key + "\"");
    seen_ |= field_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (left_out_ > 0) return leave_out();
    if (where_ == kTensor && field_ == kShapeField) {
      tensors.back().shape.clear();
      too_long_ = false;
      return go(kShape);
    }
    if (where_ == kTensor && field_ == kOffsetsField) {
      offsets_ = 0;
      return go(kOffsets);
    }
    if (!unknown_field()) note(place() + ": an array where none belongs");
    return leave_out();
  }
  bool end_array() override {
    if (left_out_ > 0) return come_back();
    if (where_ == kOffsets && offsets_ != 2) note(place() + ": data_offsets needs two numbers");
    return go(kTensor);
  }
  bool string(string_t& value) override {
    if (left_out_ > 0 || where_ == kMetadata) return true;
    if (where_ != kTensor || field_ != kDtype) return misplaced("a string");
    tensors.back().dtype_text = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (left_out_ > 0) return true;
    if (where_ == kShape) return dimension(value);
    if (where_ != kOffsets) return misplaced("a number");
    if (offsets_ < 2) (offsets_ == 0 ? tensors.back().begin : tensors.back().end) = value;
    ++offsets_;
    return true;
  }
  bool number_integer(number_integer_t) override { return number_misfit(": negative number"); }
  bool number_float(number_float_t, const string_t& text) override {
    return number_misfit(": \"" + printable(text) + "\" is not an integer of 64 bits");
  }
  bool null() override { return left_out_ > 0 || misplaced("null"); }
  bool boolean(bool) override { return left_out_ > 0 || misplaced("a boolean"); }
  bool binary(binary_t&) override { return false; }  // no such thing in text
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    problems.add("invalid JSON at byte " + std::to_string(position));
    return false;
  }

  std::vector<Tensor> tensors;
  Problems& problems;

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
  bool leave_out() {
    ++left_out_;
    return true;
  }
  bool come_back() {
    --left_out_;
    return true;
  }
  bool inside_tensor() const { return where_ == kTensor || where_ == kShape || where_ == kOffsets; }
  bool unknown_field() const { return where_ == kTensor && field_ == 0; }
  void note(std::string text) {
    problems.add(std::move(text));
    if (inside_tensor()) tensors.back().readable = false;
  }
  bool misplaced(std::string_view what) {
    if (!unknown_field()) note(place() + ": " + std::string(what) + " where none belongs");
    if (where_ == kOffsets) ++offsets_;
    return true;
  }
  bool number_misfit(const std::string& what) {
    if (left_out_ > 0 || unknown_field()) return true;
    note(place() + what);
    if (where_ == kOffsets) ++offsets_;
    return true;
  }
  std::string place() const {
    if (where_ == kStart || where_ == kEnd) return "header";
    return "\"" + printable(name_) + "\"";
  }
  bool dimension(uint64_t value) {
    std::vector<int64_t>& shape = tensors.back().shape;
    if (shape.size() == SafetensorsFile::kRankMax) {
      if (!std::exchange(too_long_, true)) note(place() + ": more than 16 dimensions");
      return true;
    }
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      note(place() + ": dimension " + std::to_string(value) + " is out of range");
      return true;
    }
    shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  Where where_ = kStart;
  std::string name_;
  unsigned field_ = 0;
  unsigned seen_ = 0;
  int offsets_ = 0;
  size_t left_out_ = 0;    // levels inside a value that does not belong
  bool too_long_ = false;  // this shape was accused of its length
  bool metadata_seen_ = false;
};

}  // namespace

Result<std::vector<Tensor>> parse_safetensors_header(std::string_view json, Problems& problems) {
  if (json.empty() || json.front() != '{') {
    return make_error(Errc::kCorruptData, "the header does not start with '{'");
  }
  // The JSON reader takes NUL for the end of its input and would ignore what follows.
  if (json.find('\0') != std::string_view::npos) {
    return make_error(Errc::kCorruptData, "the header contains a NUL byte");
  }
  HeaderSax sax(problems);
  if (!nlohmann::json::sax_parse(json, &sax)) {
    return problems.error(Errc::kCorruptData, "damaged safetensors file");
  }
  return std::move(sax.tensors);
}

}  // namespace lariat
