// The tree of a parsed template. Immutable and shared by concurrent renders.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace lariat::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct Expr {
  enum Kind {
    kLiteral,    // value
    kName,       // name
    kList,       // args
    kTuple,      // args
    kDict,       // args: key, value, key, value..
    kAttribute,  // args[0] . name
    kItem,       // args[0] [ args[1] ]
    kSlice,      // args[0] [ args[1] : args[2] : args[3] ], any of the three null
    kCall,       // args[0] ( args[1..], named )
    kFilter,     // args[0] | name ( args[1..], named )
    kTest,       // args[0] is name ( args[1..], named )
    kUnary,      // name args[0]; "not", "-", "+"
    kBinary,     // args[0] name args[1]
    kAnd,
    kOr,
    kCompare,  // args[0] ops[0] args[1] ops[1] args[2] ..
    kIf,       // args[0] if args[1] else args[2] (null: undefined)
  };
  Kind kind;
  int line = 0;
  int depth = 1;
  std::string name;
  Value value;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<std::string> ops;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<const Stmt>>;

struct Stmt {
  enum Kind {
    kText,      // text
    kOutput,    // exprs[0]
    kIf,        // while exprs[i] is false go on; bodies[i], or bodies[exprs.size()] if it is there
    kFor,       // names in exprs[0], exprs[1] the condition or null; bodies[0], bodies[1] the else branch
    kSet,       // names = exprs[0]
    kSetAttr,   // names[0] . names[1] = exprs[0]
    kSetBlock,  // names[0] = bodies[0]
    kMacro,     // text ( names = exprs or null ) bodies[0]
    kBlock,     // bodies[0], {% generation %}
    kBreak,
    kContinue,
  };
  Kind kind;
  int line = 0;
  Text text;
  std::vector<std::string> names;
  std::vector<ExprPtr> exprs;
  std::vector<Body> bodies;
};

}  // namespace lariat::jinja
