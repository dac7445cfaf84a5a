#include "tokenizer/jinja_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_lexer.h"

namespace lariat::jinja {
namespace {

using ExprMut = std::unique_ptr<Expr>;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Body run() {
    Body body = parse_body({});
    LARIAT_CHECK(peek().kind == Token::kEnd);
    return body;
  }

 private:
  // Bounds the parser's own recursion.
  struct Nested {
    explicit Nested(Parser& p) : parser(p) {
      if (++parser.nesting_ > kTreeDepthMax)
        parser.refuse(fmt::format("nesting deeper than {}", kTreeDepthMax));
    }
    ~Nested() { --parser.nesting_; }
    Parser& parser;
  };

  // --- tokens
  const Token& peek() const { return tokens_[at_]; }
  const Token& peek_next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[peek().kind == Token::kEnd ? at_ : at_++]; }
  [[noreturn]] void stop(Errc code, std::string_view what) const {
    fault(code, fmt::format("chat template, line {}: {}", peek().line, what));
  }
  [[noreturn]] void bad(std::string_view what) const { stop(Errc::kCorruptData, what); }
  [[noreturn]] void refuse(std::string_view what) const {
    stop(Errc::kUnsupported, std::string(what) + ", which is not implemented");
  }
  bool is_op(std::string_view op) const { return peek().kind == Token::kOperator && peek().text == op; }
  bool is_name(std::string_view name) const { return peek().kind == Token::kName && peek().text == name; }
  bool skip_op(std::string_view op) { return is_op(op) && (++at_, true); }
  bool skip_name(std::string_view name) { return is_name(name) && (++at_, true); }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) bad(fmt::format("expected '{}', found '{}'", op, shown()));
  }
  std::string shown() const { return peek().kind == Token::kEnd ? "the end" : peek().text.substr(0, 40); }
  std::string expect_name() {
    if (peek().kind != Token::kName) bad(fmt::format("expected a name, found '{}'", shown()));
    return take().text;
  }
  void expect_block_end() {
    if (peek().kind != Token::kBlockEnd) bad(fmt::format("expected the end of the tag, found '{}'", shown()));
    ++at_;
  }

  // --- nodes
  ExprMut node(Expr::Kind kind) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = peek().line;
    return e;
  }
  // Chains such as a + b + c nest without the parser nesting, so depth is counted on the tree too.
  void add(Expr& parent, ExprMut child) const {
    if (child) parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kTreeDepthMax) refuse(fmt::format("an expression deeper than {}", kTreeDepthMax));
    parent.args.push_back(std::move(child));
  }
  ExprMut binary(Expr::Kind kind, std::string name, ExprMut left, ExprMut right) const {
    ExprMut e = node(kind);
    e->name = std::move(name);
    add(*e, std::move(left));
    add(*e, std::move(right));
    return e;
  }
  ExprMut literal(Value value) const {
    ExprMut e = node(Expr::kLiteral);
    e->value = std::move(value);
    return e;
  }

  // --- expressions, loosest first
  ExprMut expression() {
    const Nested nested(*this);
    ExprMut e = or_expression();
    while (skip_name("if")) {
      ExprMut choice = node(Expr::kIf);
      add(*choice, std::move(e));
      add(*choice, or_expression());
      add(*choice, skip_name("else") ? expression() : nullptr);
      e = std::move(choice);
    }
    return e;
  }
  ExprMut or_expression() {
    ExprMut e = and_expression();
    while (skip_name("or")) e = binary(Expr::kOr, "or", std::move(e), and_expression());
    return e;
  }
  ExprMut and_expression() {
    ExprMut e = not_expression();
    while (skip_name("and")) e = binary(Expr::kAnd, "and", std::move(e), not_expression());
    return e;
  }
  ExprMut not_expression() {
    if (!skip_name("not")) return comparison();
    const Nested nested(*this);
    ExprMut e = node(Expr::kUnary);
    e->name = "not";
    add(*e, not_expression());
    return e;
  }
  std::string comparison_operator() {
    for (const std::string_view op : {"==", "!=", "<", "<=", ">", ">="}) {
      if (skip_op(op)) return std::string(op);
    }
    if (skip_name("in")) return "in";
    if (is_name("not") && peek_next().kind == Token::kName && peek_next().text == "in") {
      at_ += 2;
      return "not in";
    }
    return {};
  }
  ExprMut comparison() {
    ExprMut e = sum();
    ExprMut chain;
    for (std::string op; !(op = comparison_operator()).empty();) {
      if (!chain) {
        chain = node(Expr::kCompare);
        add(*chain, std::move(e));
      }
      chain->ops.push_back(std::move(op));
      add(*chain, sum());
    }
    return chain ? std::move(chain) : std::move(e);
  }
  template <typename Next>
  ExprMut left_chain(std::initializer_list<std::string_view> ops, Next next) {
    ExprMut e = next();
    for (;;) {
      const auto* op = std::find_if(ops.begin(), ops.end(), [&](std::string_view o) { return is_op(o); });
      if (op == ops.end()) return e;
      ++at_;
      e = binary(Expr::kBinary, std::string(*op), std::move(e), next());
    }
  }
  ExprMut sum() {
    return left_chain({"+", "-"}, [&] { return concatenation(); });
  }
  ExprMut concatenation() {
    return left_chain({"~"}, [&] { return product(); });
  }
  ExprMut product() {
    return left_chain({"*", "/", "//", "%"}, [&] { return power(); });
  }
  ExprMut power() {
    return left_chain({"**"}, [&] { return unary(true); });
  }
  ExprMut unary(bool with_filter) {
    ExprMut e;
    if (is_op("-") || is_op("+")) {
      const Nested nested(*this);
      e = node(Expr::kUnary);
      e->name = take().text;
      add(*e, unary(false));
    } else {
      e = postfix(primary());
    }
    return with_filter ? filters(std::move(e)) : std::move(e);
  }

  ExprMut primary() {
    const Nested nested(*this);
    const Token& t = peek();
    if (t.kind == Token::kName) return name_or_constant();
    if (t.kind == Token::kString) {
      std::string s;
      while (peek().kind == Token::kString) s += take().text;
      return literal(Value::of(Text::trusted(std::move(s))));
    }
    if (t.kind == Token::kInteger || t.kind == Token::kFloat) return number();
    if (skip_op("(")) return parenthesis();
    if (skip_op("[")) {
      ExprMut e = node(Expr::kList);
      elements(*e, "]");
      return e;
    }
    if (skip_op("{")) return dict();
    bad(fmt::format("expected a value, found '{}'", shown()));
  }
  ExprMut name_or_constant() {
    const std::string& name = take().text;
    if (name == "true" || name == "True") return literal(Value::of(true));
    if (name == "false" || name == "False") return literal(Value::of(false));
    if (name == "none" || name == "None") return literal(Value::none());
    ExprMut e = node(Expr::kName);
    e->name = name;
    return e;
  }
  ExprMut number() {
    const Token& t = take();
    if (t.kind == Token::kFloat) return literal(Value::of(std::strtod(t.text.c_str(), nullptr)));
    int64_t value = 0;
    if (std::from_chars(t.text.data(), t.text.data() + t.text.size(), value).ec != std::errc())
      refuse("an integer beyond 64 bits");
    return literal(Value::of(value));
  }
  // Elements up to `close`, a trailing comma allowed.
  void elements(Expr& e, std::string_view close) {
    while (!skip_op(close)) {
      add(e, expression());
      if (!is_op(close)) expect_op(",");
    }
  }
  ExprMut parenthesis() {
    if (skip_op(")")) return node(Expr::kTuple);
    ExprMut first = expression();
    if (skip_op(")")) return first;
    ExprMut e = node(Expr::kTuple);
    add(*e, std::move(first));
    expect_op(",");
    elements(*e, ")");
    return e;
  }
  ExprMut dict() {
    ExprMut e = node(Expr::kDict);
    while (!skip_op("}")) {
      add(*e, expression());
      expect_op(":");
      add(*e, expression());
      if (!is_op("}")) expect_op(",");
    }
    return e;
  }

  ExprMut call(ExprMut callee) {
    ExprMut e = node(Expr::kCall);
    add(*e, std::move(callee));
    arguments(*e);
    return e;
  }
  ExprMut postfix(ExprMut e) {
    for (;;) {
      if (skip_op(".")) {
        ExprMut attribute = node(Expr::kAttribute);
        attribute->name = peek().kind == Token::kInteger ? take().text : expect_name();
        add(*attribute, std::move(e));
        e = std::move(attribute);
      } else if (skip_op("[")) {
        e = subscript(std::move(e));
      } else if (is_op("(")) {
        e = call(std::move(e));
      } else {
        return e;
      }
    }
  }
  ExprMut subscript(ExprMut object) {
    ExprMut e = node(Expr::kItem);
    add(*e, std::move(object));
    const auto part = [&] { return is_op(":") || is_op("]") ? nullptr : expression(); };
    ExprMut first = part();
    if (!is_op(":") && !first) bad("expected an index");
    add(*e, std::move(first));
    if (is_op(":")) {
      e->kind = Expr::kSlice;
      for (int i = 0; i < 2; ++i) add(*e, skip_op(":") ? part() : nullptr);
    }
    expect_op("]");
    return e;
  }
  // ( value, .., name=value, .. )
  void arguments(Expr& e) {
    expect_op("(");
    while (!skip_op(")")) {
      if (is_op("*") || is_op("**")) refuse("unpacking of arguments");
      if (peek().kind == Token::kName && peek_next().kind == Token::kOperator && peek_next().text == "=") {
        std::string name = take().text;
        ++at_;
        ExprMut value = expression();
        e.depth = std::max(e.depth, value->depth + 1);
        if (e.depth > kTreeDepthMax) refuse(fmt::format("an expression deeper than {}", kTreeDepthMax));
        e.named.emplace_back(std::move(name), std::move(value));
      } else {
        if (!e.named.empty()) bad("a positional argument after a named one");
        add(e, expression());
      }
      if (!is_op(")")) expect_op(",");
    }
  }

  ExprMut filters(ExprMut e) {
    for (;;) {
      if (skip_op("|")) {
        ExprMut filter = node(Expr::kFilter);
        filter->name = expect_name();
        if (!find_filter(filter->name)) refuse(fmt::format("the filter '{}'", filter->name));
        add(*filter, std::move(e));
        if (is_op("(")) arguments(*filter);
        e = std::move(filter);
      } else if (skip_name("is")) {
        e = test(std::move(e));
      } else if (is_op("(")) {
        e = call(std::move(e));
      } else {
        return e;
      }
    }
  }
  ExprMut test(ExprMut subject) {
    const bool negated = skip_name("not");
    ExprMut e = node(Expr::kTest);
    e->name = expect_name();
    if (!find_test(e->name)) refuse(fmt::format("the test '{}'", e->name));
    add(*e, std::move(subject));
    if (is_op("(")) {
      arguments(*e);
    } else if (starts_argument()) {
      add(*e, postfix(primary()));
    }
    if (!negated) return e;
    ExprMut inverse = node(Expr::kUnary);
    inverse->name = "not";
    add(*inverse, std::move(e));
    return inverse;
  }
  // Whether what follows a test's name is its argument: `is divisibleby 3`.
  bool starts_argument() const {
    const Token& t = peek();
    if (t.kind == Token::kName) {
      for (const std::string_view word : {"else", "or", "and", "is", "in", "if", "not"}) {
        if (t.text == word) return false;
      }
      return true;
    }
    return t.kind == Token::kString || t.kind == Token::kInteger || t.kind == Token::kFloat || is_op("[") ||
           is_op("{");
  }

  // One or more expressions separated by commas: a tuple if more than one.
  ExprMut tuple_or_expression(bool with_condition = true) {
    const auto one = [&] { return with_condition ? expression() : or_expression(); };
    ExprMut first = one();
    if (!is_op(",")) return first;
    ExprMut e = node(Expr::kTuple);
    add(*e, std::move(first));
    while (skip_op(",")) {
      if (peek().kind == Token::kBlockEnd || peek().kind == Token::kOutputEnd) break;
      add(*e, one());
    }
    return e;
  }

  // --- statements
  // Statements up to a tag named in `ends`, whose name is left to be taken; without ends, up to the end.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const Nested nested(*this);
    Body body;
    for (;;) {
      const Token& t = peek();
      if (t.kind == Token::kEnd) {
        if (ends.size() > 0) bad(fmt::format("the template ends before '{}'", *(ends.end() - 1)));
        return body;
      }
      auto stmt = std::make_unique<Stmt>();
      stmt->line = t.line;
      if (t.kind == Token::kText) {
        stmt->kind = Stmt::kText;
        stmt->text = Text::trusted(take().text);
      } else if (t.kind == Token::kOutputBegin) {
        ++at_;
        stmt->kind = Stmt::kOutput;
        stmt->exprs.push_back(tuple_or_expression());
        if (peek().kind != Token::kOutputEnd) bad(fmt::format("expected '}}}}', found '{}'", shown()));
        ++at_;
      } else {
        ++at_;  // kBlockBegin: nothing else stands outside of tags
        for (const std::string_view end : ends) {
          if (is_name(end)) return body;
        }
        statement(*stmt);
      }
      body.push_back(std::move(stmt));
    }
  }

  void statement(Stmt& stmt) {
    const std::string name = expect_name();
    if (name == "if") return if_statement(stmt);
    if (name == "for") return for_statement(stmt);
    if (name == "set") return set_statement(stmt);
    if (name == "macro") return macro_statement(stmt);
    if (name == "generation") {
      stmt.kind = Stmt::kBlock;
      expect_block_end();
      stmt.bodies.push_back(parse_body({"endgeneration"}));
      return end_tag();
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) bad(fmt::format("'{}' outside of a loop", name));
      stmt.kind = name == "break" ? Stmt::kBreak : Stmt::kContinue;
      return expect_block_end();
    }
    refuse(fmt::format("the tag '{}'", name));
  }
  void end_tag() {
    ++at_;
    expect_block_end();
  }

  void if_statement(Stmt& stmt) {
    stmt.kind = Stmt::kIf;
    for (;;) {
      stmt.exprs.push_back(tuple_or_expression());
      expect_block_end();
      stmt.bodies.push_back(parse_body({"elif", "else", "endif"}));
      if (!skip_name("elif")) break;
    }
    if (skip_name("else")) {
      expect_block_end();
      stmt.bodies.push_back(parse_body({"endif"}));
    }
    end_tag();
  }

  std::vector<std::string> target_names() {
    std::vector<std::string> names;
    const bool parenthesis = skip_op("(");
    do names.push_back(expect_name());
    while (skip_op(",") && peek().kind == Token::kName && !is_name("in"));
    if (parenthesis) expect_op(")");
    return names;
  }

  void for_statement(Stmt& stmt) {
    stmt.kind = Stmt::kFor;
    stmt.names = target_names();
    if (!skip_name("in")) bad("expected 'in'");
    stmt.exprs.push_back(tuple_or_expression(false));
    stmt.exprs.push_back(skip_name("if") ? expression() : nullptr);
    if (is_name("recursive")) refuse("a recursive loop");
    expect_block_end();
    ++loops_;
    stmt.bodies.push_back(parse_body({"else", "endfor"}));
    --loops_;
    if (skip_name("else")) {
      expect_block_end();
      stmt.bodies.push_back(parse_body({"endfor"}));
    }
    end_tag();
  }

  void set_statement(Stmt& stmt) {
    stmt.names = target_names();
    stmt.kind = Stmt::kSet;
    if (skip_op(".")) {
      if (stmt.names.size() != 1) bad("an attribute among several targets");
      stmt.kind = Stmt::kSetAttr;
      stmt.names.push_back(expect_name());
    }
    if (skip_op("=")) {
      stmt.exprs.push_back(tuple_or_expression());
      return expect_block_end();
    }
    if (stmt.kind == Stmt::kSetAttr || stmt.names.size() != 1) bad("expected '='");
    if (is_op("|")) refuse("a filter on a set block");
    stmt.kind = Stmt::kSetBlock;
    expect_block_end();
    stmt.bodies.push_back(parse_body({"endset"}));
    end_tag();
  }

  void macro_statement(Stmt& stmt) {
    stmt.kind = Stmt::kMacro;
    stmt.text = Text::trusted(expect_name());
    expect_op("(");
    while (!skip_op(")")) {
      stmt.names.push_back(expect_name());
      stmt.exprs.push_back(skip_op("=") ? expression() : nullptr);
      if (!is_op(")")) expect_op(",");
    }
    expect_block_end();
    const int outer_loops = std::exchange(loops_, 0);
    stmt.bodies.push_back(parse_body({"endmacro"}));
    loops_ = outer_loops;
    end_tag();
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
};

}  // namespace

Body parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace lariat::jinja
