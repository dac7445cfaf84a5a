#include "tokenizer/jinja_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/utf8.h"

namespace lariat::jinja {

void fault(Errc code, std::string message) {
  throw Fault{make_error(code, std::move(message), "messages")};
}
void type_fault(std::string message) {
  fault(Errc::kInvalidArgument, std::move(message));
}

Text Text::user(std::string s) {
  Text t{std::move(s), {}};
  append_range(t.untrusted, {0, t.bytes.size()});
  return t;
}

void Text::append(const Text& t) {
  const size_t base = bytes.size();
  for (const ByteRange& r : t.untrusted) append_range(untrusted, {base + r.begin, base + r.end});
  bytes += t.bytes;
}

void Text::append_user(std::string_view s) {
  append_range(untrusted, {bytes.size(), bytes.size() + s.size()});
  bytes += s;
}

Value Value::undefined(std::string what) {
  return Value(Variant(Undefined{std::make_shared<const std::string>(std::move(what))}));
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, v] : items) {
    if (k.bytes == key) return &v;
  }
  return nullptr;
}

void Dict::put(Text key, Value value) {
  for (auto& [k, v] : items) {
    if (k.bytes == key.bytes) {
      v = std::move(value);
      return;
    }
  }
  items.emplace_back(std::move(key), std::move(value));
}

int container_depth(int element_depth_max) {
  if (element_depth_max + 1 > kValueDepthMax) {
    fault(Errc::kUnsupported,
          fmt::format("values nested deeper than {}, or a namespace inside another value", kValueDepthMax));
  }
  return element_depth_max + 1;
}

std::string_view type_name(const Value& v) {
  static constexpr std::string_view kNames[] = {"undefined", "None", "bool",      "int",      "float", "str",
                                                "list",      "dict", "namespace", "function", "loop"};
  return kNames[v.variant().index()];
}

bool truthy(const Value& v) {
  if (v.is_undefined() || v.is_none()) return false;
  if (v.is_number()) return v.number() != 0;
  if (const Text* t = v.text()) return !t->bytes.empty();
  if (const List* l = v.list()) return !l->items.empty();
  if (const Dict* d = v.dict()) return !d->items.empty();
  return true;
}

bool equal(Meter& meter, const Value& a, const Value& b) {
  meter.spend_steps(1);
  if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.variant().index() != b.variant().index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (const Text* t = a.text()) {
    meter.spend_scan(t->bytes.size());
    return t->bytes == b.text()->bytes;
  }
  const auto same = [&](const Value& x, const Value& y) { return equal(meter, x, y); };
  if (const List* l = a.list()) {
    return std::equal(l->items.begin(), l->items.end(), b.list()->items.begin(), b.list()->items.end(), same);
  }
  if (const Dict* d = a.dict()) {
    if (d->items.size() != b.dict()->items.size()) return false;
    return std::all_of(d->items.begin(), d->items.end(), [&](const auto& item) {
      meter.spend_lookup(d->items.size());
      const Value* other = b.dict()->find(item.first.bytes);
      return other && same(item.second, *other);
    });
  }
  return a.ns() == b.ns() && a.function() == b.function() && a.loop() == b.loop();
}

bool less(Meter& meter, const Value& a, const Value& b) {
  meter.spend_steps(1);
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.text() && b.text()) {
    meter.spend_scan(std::min(a.text()->bytes.size(), b.text()->bytes.size()));
    return a.text()->bytes < b.text()->bytes;  // UTF-8 sorts as code points do
  }
  if (a.list() && b.list()) {
    const auto &x = a.list()->items, &y = b.list()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(meter, x[i], y[i])) return less(meter, x[i], y[i]);
    }
    return x.size() < y.size();
  }
  type_fault(fmt::format("{} and {} have no order", type_name(a), type_name(b)));
}

void append_hex(std::string& out, unsigned code, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[(code >> shift) & 0xF];
}

// Python's repr: the shortest digits that read back, plain from 1e-4 to 1e16.
std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<size_t>(end - buffer));
  const int exponent = std::stoi(std::string(scientific.substr(scientific.find('e') + 1)));
  if (d != 0 && (exponent < -4 || exponent >= 16)) {
    return fmt::format("{}e{}{:02}", scientific.substr(0, scientific.find('e')), exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  char plain[400];
  const auto stop = std::to_chars(plain, plain + sizeof(plain), d, std::chars_format::fixed).ptr;
  std::string out(plain, stop);
  return out.find('.') == out.npos ? out + ".0" : out;
}

namespace {

// Steps that printing a number with a fraction is worth.
constexpr uint64_t kFloatSteps = 8;

// A character of a Python string literal.
void append_quoted(std::string& out, const Utf8Char& c, std::string_view bytes, char quote) {
  if (c.code == '\n') {
    out += "\\n";
  } else if (c.code == '\r') {
    out += "\\r";
  } else if (c.code == '\t') {
    out += "\\t";
  } else if (c.code == '\\' || c.code == static_cast<char32_t>(quote)) {
    out += '\\';
    out += static_cast<char>(c.code);
  } else if (c.code < 0x20 || c.code == 0x7F) {
    out += "\\x";
    append_hex(out, static_cast<unsigned>(c.code), 2);
  } else {
    out += bytes;
  }
}

Text quoted(Meter& meter, const Text& t) {
  meter.spend_walk(t.bytes.size());
  const bool single = t.bytes.find('\'') == t.bytes.npos || t.bytes.find('"') != t.bytes.npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (std::string_view rest = t.bytes; !rest.empty();) {
    const Utf8Char c = utf8_next(rest);
    append_quoted(out, c, rest.substr(0, c.length), quote);
    rest.remove_prefix(c.length);
  }
  return t.mapped(out + quote);
}

// repr(v)
void append_repr(Meter& meter, Text& out, const Value& v) {
  meter.spend_steps(1);
  if (const Text* t = v.text()) return out.append(quoted(meter, *t));
  if (const List* l = v.list()) {
    out.append(l->tuple ? "(" : "[");
    for (size_t i = 0; i < l->items.size(); ++i) {
      if (i > 0) out.append(", ");
      append_repr(meter, out, l->items[i]);
    }
    if (l->tuple && l->items.size() == 1) out.append(",");
    out.append(l->tuple ? ")" : "]");
    return;
  }
  if (const Dict* d = v.dict()) {
    out.append("{");
    for (size_t i = 0; i < d->items.size(); ++i) {
      if (i > 0) out.append(", ");
      out.append(quoted(meter, d->items[i].first));
      out.append(": ");
      append_repr(meter, out, d->items[i].second);
    }
    out.append("}");
    return;
  }
  append_text(meter, out, v);
}

}  // namespace

void append_text(Meter& meter, Text& out, const Value& v) {
  if (const Text* t = v.text()) {
    meter.spend_bytes(t->bytes.size() + sizeof(ByteRange) * t->untrusted.size());
    return out.append(*t);
  }
  if (v.is_undefined()) return;
  if (v.is_none()) return out.append("None");
  if (v.is<bool>()) return out.append(v.boolean() ? "True" : "False");
  if (v.is<int64_t>()) return out.append(std::to_string(v.integer()));
  if (v.is<double>()) {
    meter.spend_steps(kFloatSteps);
    return out.append(float_repr(v.number()));
  }
  if (v.list() || v.dict()) return append_repr(meter, out, v);
  type_fault(fmt::format("a {} has no text", type_name(v)));
}

Text to_text(Meter& meter, const Value& v) {
  Text out;
  append_text(meter, out, v);
  return out;
}

Value from_json(const nlohmann::ordered_json& json, int level) {
  container_depth(level - 1);
  using Kind = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Kind::boolean:
      return Value::of(json.get<bool>());
    case Kind::number_integer:
      return Value::of(json.get<int64_t>());
    case Kind::number_unsigned: {
      const auto n = json.get<uint64_t>();
      return n <= INT64_MAX ? Value::of(static_cast<int64_t>(n)) : Value::of(static_cast<double>(n));
    }
    case Kind::number_float:
      return Value::of(json.get<double>());
    case Kind::string:
      return Value::of(Text::user(utf8_sanitize(json.get_ref<const std::string&>())));
    case Kind::array: {
      List out;
      int depth = 0;
      for (const auto& item : json) {
        out.items.push_back(from_json(item, level + 1));
        depth = std::max(depth, depth_of(out.items.back()));
      }
      out.depth = container_depth(depth);
      return Value(std::make_shared<const List>(std::move(out)));
    }
    case Kind::object: {
      Dict out;
      int depth = 0;
      for (const auto& [key, item] : json.items()) {
        out.items.emplace_back(Text::user(utf8_sanitize(key)), from_json(item, level + 1));
        depth = std::max(depth, depth_of(out.items.back().second));
      }
      out.depth = container_depth(depth);
      return Value(std::make_shared<const Dict>(std::move(out)));
    }
    default:
      return Value::none();
  }
}

}  // namespace lariat::jinja
