// Tests of the template language: what stands behind `is`.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/unicode.h"

namespace lariat::jinja {
namespace {

struct Named {
  std::string_view name;
  Builtin builtin;
};

template <bool (*predicate)(const Value&)>
Value unary(Context&, const Value& self, const Args& a) {
  a.check({});
  return Value::of(predicate(self));
}

bool defined(const Value& v) {
  return !v.is_undefined();
}
bool undefined(const Value& v) {
  return v.is_undefined();
}
bool none(const Value& v) {
  return v.is_none();
}
bool string(const Value& v) {
  return v.text();
}
bool number(const Value& v) {
  return v.is_number();
}
bool integer(const Value& v) {
  return v.is<int64_t>();
}
bool floating(const Value& v) {
  return v.is<double>();
}
bool boolean(const Value& v) {
  return v.is<bool>();
}
bool is_true(const Value& v) {
  return v.is<bool>() && v.boolean();
}
bool is_false(const Value& v) {
  return v.is<bool>() && !v.boolean();
}
bool mapping(const Value& v) {
  return v.dict();
}
bool sequence(const Value& v) {
  return v.text() || v.list() || v.dict() || v.is_undefined();
}
bool callable(const Value& v) {
  return v.function();
}
// Text that `map` leaves as it is and `other` does not.
template <std::string (*map)(std::string_view), std::string (*other)(std::string_view)>
Value cased(Context& c, const Value& self, const Args& a) {
  a.check({});
  if (!self.text()) return Value::of(false);
  const std::string& s = self.text()->bytes;
  c.spend_case_map(2 * s.size());
  return Value::of(map(s) == s && other(s) != s);
}

int64_t whole(const Value& v, const Args& a) {
  if (!v.is_integer()) type_fault(fmt::format("chat template: {} of {}", a.callee, type_name(v)));
  return v.integer();
}
Value odd(Context&, const Value& self, const Args& a) {
  a.check({});
  return Value::of(whole(self, a) % 2 != 0);
}
Value even(Context&, const Value& self, const Args& a) {
  a.check({});
  return Value::of(whole(self, a) % 2 == 0);
}
Value divisible(Context&, const Value& self, const Args& a) {
  a.check({"num"});
  const int64_t by = whole(a.required(0, "num"), a);
  if (by == 0) type_fault("chat template: division by zero");
  return Value::of(by == -1 || whole(self, a) % by == 0);
}

// One of ==, !=, <, <=, >, >= by the letters e, n, l, L, g, G.
template <char op>
Value compared(Context& c, const Value& self, const Args& a) {
  a.check({"other"});
  const Value& other = a.required(0, "other");
  if (op == 'e') return Value::of(equal(c, self, other));
  if (op == 'n') return Value::of(!equal(c, self, other));
  if (op == 'l') return Value::of(less(c, self, other));
  if (op == 'g') return Value::of(less(c, other, self));
  if (op == 'L') return Value::of(less(c, self, other) || equal(c, self, other));
  return Value::of(less(c, other, self) || equal(c, self, other));
}
Value same(Context& c, const Value& self, const Args& a) {
  a.check({"other"});
  const Value& other = a.required(0, "other");
  return Value::of(self.variant().index() == other.variant().index() && equal(c, self, other));
}
Value in(Context& c, const Value& self, const Args& a) {
  a.check({"seq"});
  return Value::of(contains(c, self, a.required(0, "seq")));
}

constexpr std::array kTests = {
    Named{"defined", unary<defined>},
    Named{"undefined", unary<undefined>},
    Named{"none", unary<none>},
    Named{"string", unary<string>},
    Named{"number", unary<number>},
    Named{"integer", unary<integer>},
    Named{"float", unary<floating>},
    Named{"boolean", unary<boolean>},
    Named{"true", unary<is_true>},
    Named{"false", unary<is_false>},
    Named{"mapping", unary<mapping>},
    Named{"iterable", unary<sequence>},
    Named{"sequence", unary<sequence>},
    Named{"callable", unary<callable>},
    Named{"lower", cased<to_lower, to_upper>},
    Named{"upper", cased<to_upper, to_lower>},
    Named{"odd", odd},
    Named{"even", even},
    Named{"divisibleby", divisible},
    Named{"sameas", same},
    Named{"in", in},
    Named{"equalto", compared<'e'>},
    Named{"eq", compared<'e'>},
    Named{"==", compared<'e'>},
    Named{"ne", compared<'n'>},
    Named{"!=", compared<'n'>},
    Named{"lt", compared<'l'>},
    Named{"lessthan", compared<'l'>},
    Named{"<", compared<'l'>},
    Named{"le", compared<'L'>},
    Named{"<=", compared<'L'>},
    Named{"gt", compared<'g'>},
    Named{"greaterthan", compared<'g'>},
    Named{">", compared<'g'>},
    Named{"ge", compared<'G'>},
    Named{">=", compared<'G'>},
};

}  // namespace

Builtin find_test(std::string_view name) {
  const auto it = std::find_if(kTests.begin(), kTests.end(), [&](const Named& n) { return n.name == name; });
  return it == kTests.end() ? nullptr : it->builtin;
}

}  // namespace lariat::jinja
