#include "tokenizer/jinja_interpreter.h"

#include <fmt/core.h>

#include <algorithm>

namespace lariat::jinja {

// Variables of one scope: the template, a round of a loop, a call of a macro.
struct Frame {
  std::vector<std::pair<std::string, Value>> variables;
  std::shared_ptr<Frame> parent;

  void set(std::string_view name, Value value) {
    for (auto& [n, v] : variables) {
      if (n == name) {
        v = std::move(value);
        return;
      }
    }
    variables.emplace_back(std::string(name), std::move(value));
  }
};

namespace {

// Evaluation recurses with the tree, and through macros without it.
constexpr int kCallDepthMax = 400;
// A round of a loop makes a scope.
constexpr uint64_t kRoundSteps = 4;

class Interpreter {
 public:
  Interpreter(Context& context, std::vector<std::pair<std::string, Value>> globals)
      : context_(context), frame_(std::make_shared<Frame>(Frame{std::move(globals), nullptr})) {}

  Text render(const Body& body) {
    execute(body);
    return std::move(out_);
  }

 private:
  enum class Flow { kNext, kBreak, kContinue };

  struct Nested {
    explicit Nested(Interpreter& i) : interpreter(i) {
      i.context_.spend_steps(1);
      if (++i.depth_ > kCallDepthMax) fault(Errc::kResourceExhausted, "chat template: calls nested too deep");
    }
    ~Nested() { --interpreter.depth_; }
    Interpreter& interpreter;
  };

  // A new scope until the end of the block.
  struct Scope {
    Scope(Interpreter& i, std::shared_ptr<Frame> parent) : interpreter(i), outer(i.frame_) {
      i.frame_ = std::make_shared<Frame>(Frame{{}, std::move(parent)});
    }
    ~Scope() { interpreter.frame_ = outer; }
    Interpreter& interpreter;
    const std::shared_ptr<Frame> outer;
  };

  Flow execute(const Body& body) {
    const Nested nested(*this);
    for (const auto& stmt : body) {
      const Flow flow = execute(*stmt);
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow execute(const Stmt& s) {
    context_.spend_steps(1);
    switch (s.kind) {
      case Stmt::kText:
        emit(s.text);
        return Flow::kNext;
      case Stmt::kOutput:
        emit_value(eval(*s.exprs[0]));
        return Flow::kNext;
      case Stmt::kIf:
        return execute_if(s);
      case Stmt::kFor:
        execute_for(s);
        return Flow::kNext;
      case Stmt::kSet:
        assign(s.names, eval(*s.exprs[0]));
        return Flow::kNext;
      case Stmt::kSetAttr:
        set_attribute(s);
        return Flow::kNext;
      case Stmt::kSetBlock:
        set(s.names[0], capture(s.bodies[0]));
        return Flow::kNext;
      case Stmt::kMacro:
        set(s.text.bytes,
            Value(std::make_shared<const Function>(Function{s.text.bytes, nullptr, {}, &s, frame_})));
        return Flow::kNext;
      case Stmt::kBlock:
        return execute(s.bodies[0]);
      case Stmt::kBreak:
        return Flow::kBreak;
      case Stmt::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNext;
  }

  void emit(const Text& t) {
    context_.spend_bytes(t.bytes.size() + sizeof(ByteRange) * t.untrusted.size());
    out_.append(t);
  }
  void emit_value(const Value& v) { append_text(context_, out_, v); }

  // What a body prints, as a value.
  Value capture(const Body& body) {
    Text outer = std::exchange(out_, {});
    execute(body);
    return context_.text(std::exchange(out_, std::move(outer)));
  }

  Flow execute_if(const Stmt& s) {
    for (size_t i = 0; i < s.exprs.size(); ++i) {
      if (truthy(eval(*s.exprs[i]))) return execute(s.bodies[i]);
    }
    return s.bodies.size() > s.exprs.size() ? execute(s.bodies.back()) : Flow::kNext;
  }

  void set(std::string_view name, Value value) {
    context_.spend_lookup(frame_->variables.size());
    frame_->set(name, std::move(value));
  }

  void assign(const std::vector<std::string>& names, const Value& value) {
    if (names.size() == 1) return set(names[0], value);
    const std::vector<Value> parts = context_.elements(value);
    if (parts.size() != names.size()) {
      type_fault(fmt::format("chat template: {} values for {} names", parts.size(), names.size()));
    }
    for (size_t i = 0; i < names.size(); ++i) set(names[i], parts[i]);
  }

  void set_attribute(const Stmt& s) {
    const Value target = look_up(s.names[0]);
    if (!target.ns()) type_fault(fmt::format("chat template: '{}' is no namespace", s.names[0]));
    Value value = eval(*s.exprs[0]);
    container_depth(depth_of(value));
    context_.spend_lookup(target.ns()->dict.items.size());
    target.ns()->dict.put(Text::trusted(s.names[1]), std::move(value));
  }

  void execute_for(const Stmt& s) {
    std::vector<Value> items = context_.elements(eval(*s.exprs[0]));
    if (s.exprs[1]) {
      std::erase_if(items, [&](const Value& item) {
        context_.spend_steps(kRoundSteps);
        const Scope scope(*this, frame_);
        assign(s.names, item);
        return !truthy(eval(*s.exprs[1]));
      });
    }
    if (items.empty()) {
      if (s.bodies.size() > 1) {
        const Scope scope(*this, frame_);
        execute(s.bodies[1]);
      }
      return;
    }
    auto loop = std::make_shared<Loop>();
    loop->items = std::make_shared<const List>(List{std::move(items), false, kValueDepthMax - 1});
    for (; loop->index0 < loop->items->items.size(); ++loop->index0) {
      context_.spend_steps(kRoundSteps);
      const Scope scope(*this, frame_);
      frame_->set("loop", Value(loop));
      assign(s.names, loop->items->items[loop->index0]);
      if (execute(s.bodies[0]) == Flow::kBreak) break;
    }
  }

  Value look_up(std::string_view name) {
    for (const Frame* f = frame_.get(); f; f = f->parent.get()) {
      context_.spend_steps(1);
      context_.spend_lookup(f->variables.size());
      for (const auto& [n, v] : f->variables) {
        if (n == name) return v;
      }
    }
    if (Builtin global = find_global(name)) {
      return Value(std::make_shared<const Function>(Function{std::string(name), global, {}, nullptr, {}}));
    }
    return Value::undefined(fmt::format("'{}' is undefined", name.substr(0, 60)));
  }

  Value eval(const Expr& e) {
    const Nested nested(*this);
    switch (e.kind) {
      case Expr::kLiteral:
        return e.value;
      case Expr::kName:
        return look_up(e.name);
      case Expr::kList:
      case Expr::kTuple:
        return context_.list(eval_all(e, 0), e.kind == Expr::kTuple);
      case Expr::kDict:
        return eval_dict(e);
      case Expr::kAttribute:
        return get_attribute(context_, eval(*e.args[0]), e.name);
      case Expr::kItem: {
        const Value self = eval(*e.args[0]);
        return get_item(context_, self, eval(*e.args[1]));
      }
      case Expr::kSlice:
        return eval_slice(e);
      case Expr::kCall:
        return eval_call(e);
      case Expr::kFilter:
        return find_filter(e.name)(context_, eval(*e.args[0]), eval_args(e, e.name));
      case Expr::kTest:
        return find_test(e.name)(context_, eval(*e.args[0]), eval_args(e, e.name));
      case Expr::kUnary:
        return eval_unary(e);
      case Expr::kBinary: {
        const Value left = eval(*e.args[0]);
        return binary_operator(context_, e.name, left, eval(*e.args[1]));
      }
      case Expr::kAnd: {
        Value left = eval(*e.args[0]);
        return truthy(left) ? eval(*e.args[1]) : left;
      }
      case Expr::kOr: {
        Value left = eval(*e.args[0]);
        return truthy(left) ? left : eval(*e.args[1]);
      }
      case Expr::kCompare:
        return eval_compare(e);
      case Expr::kIf:
        if (truthy(eval(*e.args[1]))) return eval(*e.args[0]);
        return e.args[2] ? eval(*e.args[2]) : Value::undefined("an if expression without else was false");
    }
    return {};
  }

  std::vector<Value> eval_all(const Expr& e, size_t from) {
    std::vector<Value> out;
    for (size_t i = from; i < e.args.size(); ++i) out.push_back(eval(*e.args[i]));
    return out;
  }

  Args eval_args(const Expr& e, std::string_view callee) {
    Args args{eval_all(e, 1), {}, callee};
    for (const auto& [name, value] : e.named) args.named.emplace_back(name, eval(*value));
    return args;
  }

  Value eval_dict(const Expr& e) {
    Dict d;
    for (size_t i = 0; i < e.args.size(); i += 2) {
      const Value key = eval(*e.args[i]);
      if (!key.text())
        fault(Errc::kUnsupported, "chat template: dict keys other than strings are not implemented");
      context_.spend_lookup(d.items.size());
      d.put(*key.text(), eval(*e.args[i + 1]));
    }
    return context_.dict(std::move(d));
  }

  Value eval_slice(const Expr& e) {
    const Value self = eval(*e.args[0]);
    const auto part = [&](size_t i) { return e.args[i] ? eval(*e.args[i]) : Value::none(); };
    const Value first = part(1), last = part(2), step = part(3);
    return get_slice(context_, self, first, last, step);
  }

  Value eval_unary(const Expr& e) {
    Value v = eval(*e.args[0]);
    if (e.name == "not") return Value::of(!truthy(v));
    if (!v.is_number()) type_fault(fmt::format("chat template: {}{} is not possible", e.name, type_name(v)));
    if (e.name == "+") return v;
    if (v.is<double>()) return Value::of(-v.number());
    return binary_operator(context_, "-", Value::of(int64_t{0}), v);
  }

  Value eval_compare(const Expr& e) {
    Value left = eval(*e.args[0]);
    for (size_t i = 0; i < e.ops.size(); ++i) {
      Value right = eval(*e.args[i + 1]);
      if (!compare(left, e.ops[i], right)) return Value::of(false);
      left = std::move(right);
    }
    return Value::of(true);
  }

  bool compare(const Value& a, std::string_view op, const Value& b) {
    if (op == "==") return equal(context_, a, b);
    if (op == "!=") return !equal(context_, a, b);
    if (op == "in") return contains(context_, a, b);
    if (op == "not in") return !contains(context_, a, b);
    if (op == "<") return less(context_, a, b);
    if (op == ">") return less(context_, b, a);
    if (op == "<=") return less(context_, a, b) || equal(context_, a, b);
    return less(context_, b, a) || equal(context_, a, b);
  }

  Value eval_call(const Expr& e) {
    const Value callee = eval(*e.args[0]);
    const Function* f = callee.function();
    if (callee.is_undefined())
      type_fault(fmt::format("chat template, line {}: {}", e.line, callee.undefined_what()));
    if (!f) type_fault(fmt::format("chat template, line {}: {} is not callable", e.line, type_name(callee)));
    const Args args = eval_args(e, f->name);
    return f->builtin ? f->builtin(context_, f->self, args) : call_macro(*f, args);
  }

  Value call_macro(const Function& f, const Args& args) {
    const Stmt& macro = *f.macro;
    const std::shared_ptr<Frame> scope_of_macro = f.scope.lock();
    if (!scope_of_macro)
      fault(Errc::kUnsupported, "chat template: a macro outlived the block that defines it");
    if (args.positional.size() > macro.names.size()) {
      type_fault(fmt::format("chat template: macro '{}' takes {} arguments", f.name, macro.names.size()));
    }
    context_.spend_lookup(args.named.size() * macro.names.size());
    for (const auto& [name, value] : args.named) {
      if (std::find(macro.names.begin(), macro.names.end(), name) == macro.names.end()) {
        type_fault(fmt::format("chat template: macro '{}' has no argument '{}'", f.name, name));
      }
    }
    const Scope scope(*this, scope_of_macro);
    for (size_t i = 0; i < macro.names.size(); ++i) {
      context_.spend_lookup(args.named.size());
      if (const Value* given = args.get(i, macro.names[i])) {
        set(macro.names[i], *given);
      } else {
        set(macro.names[i], macro.exprs[i]
                                ? eval(*macro.exprs[i])
                                : Value::undefined(fmt::format("'{}' is undefined", macro.names[i])));
      }
    }
    return capture(macro.bodies[0]);
  }

  Context& context_;
  std::shared_ptr<Frame> frame_;
  Text out_;
  int depth_ = 0;
};

}  // namespace

Text run(const Body& body, std::vector<std::pair<std::string, Value>> globals, Context& context) {
  return Interpreter(context, std::move(globals)).render(body);
}

}  // namespace lariat::jinja
