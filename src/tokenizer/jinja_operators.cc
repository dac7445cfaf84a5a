// Attribute, item and slice access, arithmetic, membership.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/utf8.h"

namespace lariat::jinja {
namespace {

[[noreturn]] void undefined_fault(const Value& v) {
  type_fault(fmt::format("chat template: {}", v.undefined_what()));
}

Value no_attribute(const Value& self, std::string_view name) {
  return Value::undefined(fmt::format("{} has no attribute '{}'", type_name(self), name.substr(0, 60)));
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto i = static_cast<int64_t>(loop.index0), n = static_cast<int64_t>(loop.items->items.size());
  if (name == "index") return Value::of(i + 1);
  if (name == "index0") return Value::of(i);
  if (name == "revindex") return Value::of(n - i);
  if (name == "revindex0") return Value::of(n - i - 1);
  if (name == "first") return Value::of(i == 0);
  if (name == "last") return Value::of(i + 1 == n);
  if (name == "length") return Value::of(n);
  // Jinja counts recursion of one loop here, not loops inside loops; recursive loops are refused.
  if (name == "depth0") return Value::of(int64_t{0});
  if (name == "depth") return Value::of(int64_t{1});
  if (name == "previtem" && i > 0) return loop.items->items[loop.index0 - 1];
  if (name == "nextitem" && i + 1 < n) return loop.items->items[loop.index0 + 1];
  return Value::undefined(fmt::format("loop has no attribute '{}'", name.substr(0, 60)));
}

// Python's clamping of a slice's bounds.
int64_t bound(const Value& v, int64_t n, int64_t step, int64_t fallback) {
  if (v.is_none()) return fallback;
  if (!v.is_integer()) type_fault("chat template: slice bounds must be integers");
  int64_t i = v.integer();
  if (i < 0) i = i < -n ? (step < 0 ? -1 : 0) : i + n;
  return std::min(i, step < 0 ? n - 1 : n);
}

Value number_operator(std::string_view op, const Value& left, const Value& right) {
  const auto overflow = [] { fault(Errc::kUnsupported, "chat template: an integer beyond 64 bits"); };
  if (op == "/") {
    if (right.number() == 0) type_fault("chat template: division by zero");
    return Value::of(left.number() / right.number());
  }
  if (left.is_integer() && right.is_integer()) {
    const int64_t a = left.integer(), b = right.integer();
    int64_t out = 0;
    if (op == "+"   ? __builtin_add_overflow(a, b, &out)
        : op == "-" ? __builtin_sub_overflow(a, b, &out)
                    : op == "*" && __builtin_mul_overflow(a, b, &out)) {
      overflow();
    }
    if (op == "+" || op == "-" || op == "*") return Value::of(out);
    if (op == "**") {
      if (b < 0) return Value::of(std::pow(left.number(), right.number()));
      if (b > 64 && (a > 1 || a < -1)) overflow();
      out = 1;
      for (int64_t i = 0; i < (b > 64 ? 2 - b % 2 : b); ++i) {
        if (__builtin_mul_overflow(out, a, &out)) overflow();
      }
      return Value::of(out);
    }
    if (b == 0) type_fault("chat template: division by zero");
    if (a == INT64_MIN && b == -1) overflow();
    const int64_t rest = a % b;
    const bool round_down = rest != 0 && (rest < 0) != (b < 0);
    return Value::of(op == "//" ? a / b - (round_down ? 1 : 0) : rest + (round_down ? b : 0));
  }
  const double a = left.number(), b = right.number();
  if (op == "+") return Value::of(a + b);
  if (op == "-") return Value::of(a - b);
  if (op == "*") return Value::of(a * b);
  if (op == "**") return Value::of(std::pow(a, b));
  if (b == 0) type_fault("chat template: division by zero");
  return Value::of(op == "//" ? std::floor(a / b) : a - b * std::floor(a / b));
}

Value repeat(Context& context, const Value& sequence, int64_t count) {
  const size_t times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (const Text* t = sequence.text()) {
    context.spend_steps(times);
    context.spend_bytes((t->bytes.size() + sizeof(ByteRange) * t->untrusted.size()) * times);
    Text out;
    out.bytes.reserve(t->bytes.size() * times);
    for (size_t i = 0; i < times; ++i) out.append(*t);
    return context.text(std::move(out));
  }
  const auto& items = sequence.list()->items;
  context.spend_steps(times);
  std::vector<Value> out;
  for (size_t i = 0; i < times; ++i) {
    context.spend_steps(items.size());
    context.spend_bytes(sizeof(Value) * items.size());
    out.insert(out.end(), items.begin(), items.end());
  }
  return context.list(std::move(out), sequence.list()->tuple);
}

// str(left) + str(right); appending spends its bytes.
Value joined(Context& context, const Value& left, const Value& right) {
  context.spend_bytes(sizeof(Text));
  Text out;
  append_text(context, out, left);
  append_text(context, out, right);
  return Value::of(std::move(out));
}

}  // namespace

int depth_of(const Value& v) {
  if (const List* l = v.list()) return l->depth;
  if (const Dict* d = v.dict()) return d->depth;
  if (v.ns()) return kValueDepthMax;
  if (const Loop* l = v.loop()) return l->items->depth + 1;
  if (const Function* f = v.function()) return f->macro ? 1 : depth_of(f->self) + 1;
  return 0;
}

Value Context::list(std::vector<Value> items, bool tuple) {
  spend_bytes(32 + sizeof(Value) * items.size());
  int depth = 0;
  for (const Value& v : items) depth = std::max(depth, depth_of(v));
  return Value(std::make_shared<const List>(List{std::move(items), tuple, container_depth(depth)}));
}

Value Context::dict(Dict d) {
  spend_bytes(32 + (sizeof(Value) + sizeof(Text)) * d.items.size());
  int depth = 0;
  for (const auto& [key, v] : d.items) depth = std::max(depth, depth_of(v));
  d.depth = container_depth(depth);
  return Value(std::make_shared<const Dict>(std::move(d)));
}

std::vector<Value> Context::elements(const Value& v) {
  std::vector<Value> out;
  if (const List* l = v.list()) {
    spend_steps(l->items.size());
    out = l->items;
  } else if (const Dict* d = v.dict()) {
    spend_steps(d->items.size());
    for (const auto& item : d->items) out.push_back(text(item.first));
  } else if (const Text* t = v.text()) {
    const auto offsets = char_offsets(*this, t->bytes);
    spend_steps(offsets.size());
    spend_bytes(offsets.size() * (sizeof(Value) + sizeof(Text)));
    for (size_t i = 0; i + 1 < offsets.size(); ++i) out.push_back(text(t->slice(offsets[i], offsets[i + 1])));
  } else if (!v.is_undefined()) {
    type_fault(fmt::format("chat template: {} is not iterable", type_name(v)));
  }
  spend_bytes(out.size() * sizeof(Value));
  return out;
}

std::vector<size_t> char_offsets(Meter& meter, std::string_view utf8) {
  meter.spend_bytes(sizeof(size_t) * utf8.size());
  std::vector<size_t> out;
  for (size_t i = 0; i < utf8.size(); ++i) {
    if ((static_cast<unsigned char>(utf8[i]) & 0xC0) != 0x80) out.push_back(i);
  }
  out.push_back(utf8.size());
  return out;
}

Value get_attribute(Context& context, const Value& self, std::string_view name) {
  if (self.is_undefined()) undefined_fault(self);
  if (const Loop* loop = self.loop(); loop && name != "cycle") return loop_attribute(*loop, name);
  if (Builtin method = find_method(self, name)) {
    return Value(std::make_shared<const Function>(Function{std::string(name), method, self, nullptr, {}}));
  }
  if (self.dict() || self.ns()) {
    const Dict& d = self.ns() ? self.ns()->dict : *self.dict();
    context.spend_lookup(d.items.size());
    const Value* found = d.find(name);
    return found ? *found : no_attribute(self, name);
  }
  int64_t index = 0;
  if (self.list() && !name.empty() && name.find_first_not_of("0123456789") == name.npos && name.size() < 10) {
    for (const char c : name) index = index * 10 + (c - '0');
    return get_item(context, self, Value::of(index));
  }
  return no_attribute(self, name);
}

Value get_item(Context& context, const Value& self, const Value& key) {
  if (self.is_undefined()) undefined_fault(self);
  if (key.is_undefined()) undefined_fault(key);
  if (const Text* name = key.text()) {
    if (self.dict()) context.spend_lookup(self.dict()->items.size());
    const Value* found = self.dict() ? self.dict()->find(name->bytes) : nullptr;
    return found ? *found : get_attribute(context, self, name->bytes);
  }
  if (key.is_integer() && (self.list() || self.text())) {
    const std::vector<size_t> offsets =
        self.text() ? char_offsets(context, self.text()->bytes) : std::vector<size_t>();
    const auto n = static_cast<int64_t>(self.list() ? self.list()->items.size() : offsets.size() - 1);
    const int64_t i = key.integer() < 0 ? key.integer() + n : key.integer();
    if (i < 0 || i >= n)
      return Value::undefined(fmt::format("{} has no element {}", type_name(self), key.integer()));
    const auto at = static_cast<size_t>(i);
    return self.list() ? self.list()->items[at]
                       : context.text(self.text()->slice(offsets[at], offsets[at + 1]));
  }
  return Value::undefined(fmt::format("{} has no element of that kind", type_name(self)));
}

Value get_slice(Context& context, const Value& self, const Value& first, const Value& last,
                const Value& step_value) {
  if (self.is_undefined()) undefined_fault(self);
  if (!self.list() && !self.text())
    type_fault(fmt::format("chat template: {} cannot be sliced", type_name(self)));
  if (!step_value.is_none() && !step_value.is_integer())
    type_fault("chat template: slice bounds must be integers");
  const int64_t step = step_value.is_none() ? 1 : step_value.integer();
  if (step == 0 || step == INT64_MIN) type_fault("chat template: a slice's step cannot be 0");
  const std::vector<size_t> offsets =
      self.text() ? char_offsets(context, self.text()->bytes) : std::vector<size_t>();
  const auto n = static_cast<int64_t>(self.list() ? self.list()->items.size() : offsets.size() - 1);
  const int64_t begin = bound(first, n, step, step < 0 ? n - 1 : 0);
  const int64_t end = bound(last, n, step, step < 0 ? -1 : n);
  if (self.text() && step == 1) {
    if (begin >= end) return context.text({});
    return context.text(
        self.text()->slice(offsets[static_cast<size_t>(begin)], offsets[static_cast<size_t>(end)]));
  }
  std::vector<Value> items;
  Text text;
  for (int64_t i = begin; step < 0 ? i > end : i < end;) {
    const auto at = static_cast<size_t>(i);
    context.spend_steps(1);
    if (self.list()) {
      items.push_back(self.list()->items[at]);
    } else {
      context.spend_walk(offsets[at + 1] - offsets[at]);
      text.append(self.text()->slice(offsets[at], offsets[at + 1]));
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return self.list() ? context.list(std::move(items), self.list()->tuple) : context.text(std::move(text));
}

Value binary_operator(Context& context, std::string_view op, const Value& left, const Value& right) {
  if (op == "~") {
    return joined(context, left, right);
  }
  for (const Value* v : {&left, &right}) {
    if (v->is_undefined()) undefined_fault(*v);
  }
  if (left.is_number() && right.is_number()) return number_operator(op, left, right);
  if (op == "+" && left.text() && right.text()) {
    return joined(context, left, right);
  }
  if (op == "+" && left.list() && right.list()) {
    context.spend_steps(left.list()->items.size() + right.list()->items.size());
    std::vector<Value> out = left.list()->items;
    out.insert(out.end(), right.list()->items.begin(), right.list()->items.end());
    return context.list(std::move(out), left.list()->tuple);
  }
  if (op == "*" && right.is_integer() && (left.text() || left.list()))
    return repeat(context, left, right.integer());
  if (op == "*" && left.is_integer() && (right.text() || right.list()))
    return repeat(context, right, left.integer());
  if (op == "%" && left.text())
    fault(Errc::kUnsupported, "chat template: string formatting with % is not implemented");
  type_fault(fmt::format("chat template: {} {} {} is not possible", type_name(left), op, type_name(right)));
}

bool contains(Meter& meter, const Value& left, const Value& right) {
  if (right.is_undefined()) return false;
  if (const Text* t = right.text()) {
    if (!left.text()) type_fault(fmt::format("chat template: {} in str is not possible", type_name(left)));
    return find_text(meter, t->bytes, left.text()->bytes) != std::string::npos;
  }
  if (const List* l = right.list()) {
    return std::any_of(l->items.begin(), l->items.end(),
                       [&](const Value& v) { return equal(meter, left, v); });
  }
  if (right.dict() || right.ns()) {
    const Dict& d = right.ns() ? right.ns()->dict : *right.dict();
    meter.spend_lookup(d.items.size());
    return left.text() && d.find(left.text()->bytes);
  }
  type_fault(fmt::format("chat template: {} is not iterable", type_name(right)));
}

}  // namespace lariat::jinja
