#include "tokenizer/split_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

namespace lariat {
namespace {

constexpr uint32_t kMatchLimit = 50'000'000;  // backtracking steps of one match
constexpr uint32_t kHeapLimitKib = 64 << 10;  // without JIT
constexpr size_t kJitStackBytes = 8 << 20;    // with JIT; its default is 32 KiB
constexpr uint32_t kParenthesesDepthMax = 50;

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* p) const {
    Free(p);
  }
};
using CodePtr = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using CompileContextPtr = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchContextPtr = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using JitStackPtr = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

std::string pcre_message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct SplitRegex::Program {
  CodePtr code;
  bool jit = false;
};

Result<SplitRegex> SplitRegex::compile(std::string_view oniguruma) {
  LARIAT_ASSIGN(const std::string pcre, translate_regex(oniguruma));
  return build(pcre, false);
}

Result<SplitRegex> SplitRegex::literal(std::string_view text) {
  if (text.empty()) return make_error(Errc::kCorruptData, "empty split pattern");
  return build(std::string(text), true);
}

Result<SplitRegex> SplitRegex::build(const std::string& pcre, bool is_literal) {
  CompileContextPtr context(pcre2_compile_context_create(nullptr));
  LARIAT_CHECK(context, "out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), kParenthesesDepthMax);
  uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C;
  options |= is_literal ? PCRE2_LITERAL : PCRE2_UCP;
  if (is_literal) options &= ~PCRE2_NEVER_BACKSLASH_C;
  int code = 0;
  PCRE2_SIZE where = 0;
  auto program = std::make_shared<Program>();
  program->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre.data()), pcre.size(), options, &code,
                                    &where, context.get()));
  if (!program->code) {
    return make_error(Errc::kCorruptData,
                      fmt::format("regex does not compile: {} (near byte {})", pcre_message(code), where));
  }
  // Where a system forbids writable and executable memory the interpreter does the same, slower.
  program->jit = pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return SplitRegex(std::move(program));
}

Status SplitRegex::find_all(std::string_view text, std::vector<ByteRange>& out) const {
  const pcre2_code* code = program_->code.get();
  MatchDataPtr data(pcre2_match_data_create(1, nullptr));  // the whole match is all we read
  MatchContextPtr context(pcre2_match_context_create(nullptr));
  LARIAT_CHECK(data && context, "out of memory");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  JitStackPtr stack;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  for (size_t from = 0; from < text.size();) {
    // The text was validated once; PCRE2's own check would read it all again for every match.
    const int found =
        program_->jit
            ? pcre2_jit_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), context.get())
            : pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && !stack) {
      stack.reset(pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr));
      LARIAT_CHECK(stack, "out of memory");
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      continue;
    }
    if (found < 0) {
      return make_error(Errc::kResourceExhausted,
                        fmt::format("the tokenizer's split pattern gave up at byte {} of {}: {}", from,
                                    text.size(), pcre_message(found)));
    }
    if (bounds[1] > bounds[0]) {
      out.push_back({bounds[0], bounds[1]});
      from = bounds[1];
    } else {  // an empty match splits nothing; go on behind the next character
      from = bounds[1] + 1;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    }
  }
  return Ok{};
}

}  // namespace lariat
