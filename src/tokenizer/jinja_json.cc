// json.dumps: the tojson filter of chat templates.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_value.h"
#include "tokenizer/utf8.h"

namespace lariat::jinja {
namespace {

void append_escape(std::string& out, unsigned code) {
  out += "\\u";
  append_hex(out, code, 4);
}

std::string escaped(std::string_view text, bool ensure_ascii) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Char c = utf8_next(text);
    switch (c.code) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        const auto code = static_cast<unsigned>(c.code);
        if (code < 0x20 || (ensure_ascii && code > 0x7E && code < 0x10000)) {
          append_escape(out, code);
        } else if (ensure_ascii && code >= 0x10000) {
          append_escape(out, 0xD800 + ((code - 0x10000) >> 10));
          append_escape(out, 0xDC00 + ((code - 0x10000) & 0x3FF));
        } else {
          out += text.substr(0, c.length);
        }
    }
    text.remove_prefix(c.length);
  }
  return out + '"';
}

class Writer {
 public:
  Writer(Meter& meter, const JsonStyle& style) : meter_(meter), style_(style) {}

  void write(const Value& v, int level) {
    meter_.spend_steps(1);
    if (const Text* t = v.text()) return string(*t);
    if (v.is_none()) return out.append("null");
    if (v.is<bool>()) return out.append(v.boolean() ? "true" : "false");
    if (v.is<int64_t>()) return out.append(std::to_string(v.integer()));
    if (v.is<double>()) return out.append(number(v.number()));
    if (const List* l = v.list()) return list(*l, level);
    if (const Dict* d = v.dict()) return dict(*d, level);
    type_fault(fmt::format("tojson: {} is not JSON serializable",
                           v.is_undefined() ? v.undefined_what() : type_name(v)));
  }

  Text out;

 private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_repr(d);
  }

  void string(const Text& t) {
    meter_.spend_walk(t.bytes.size());
    std::string written = escaped(t.bytes, style_.ensure_ascii);
    meter_.spend_bytes(written.size());
    out.append(t.mapped(std::move(written)));
  }

  void separate() {
    meter_.spend_bytes(style_.item_separator.size() + style_.key_separator.size());
    out.append(style_.item_separator);
  }

  void list(const List& l, int level) {
    if (l.items.empty()) return out.append("[]");
    out.append("[");
    for (size_t i = 0; i < l.items.size(); ++i) {
      if (i > 0) separate();
      new_line(level + 1);
      write(l.items[i], level + 1);
    }
    new_line(level);
    out.append("]");
  }

  void dict(const Dict& d, int level) {
    if (d.items.empty()) return out.append("{}");
    std::vector<const std::pair<Text, Value>*> items;
    for (const auto& item : d.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::sort(items.begin(), items.end(),
                [](const auto* a, const auto* b) { return a->first.bytes < b->first.bytes; });
    }
    out.append("{");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) separate();
      new_line(level + 1);
      string(items[i]->first);
      out.append(style_.key_separator);
      write(items[i]->second, level + 1);
    }
    new_line(level);
    out.append("}");
  }

  void new_line(int level) {
    if (style_.indent < 0) return;
    const auto width = static_cast<size_t>(style_.indent) * static_cast<size_t>(level);
    meter_.spend_bytes(1 + width);
    out.append("\n" + std::string(width, ' '));
  }

  Meter& meter_;
  const JsonStyle& style_;
};

}  // namespace

Text to_json(Meter& meter, const Value& v, const JsonStyle& style) {
  Writer writer(meter, style);
  writer.write(v, 0);
  return std::move(writer.out);
}

}  // namespace lariat::jinja
