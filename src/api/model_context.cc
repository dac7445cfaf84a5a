#include "api/model_context.h"

#include <fmt/core.h>

namespace lariat {

std::string ModelContext::limit_text() const {
  if (!memory_binds()) return fmt::format("this model's maximum context length is {} tokens", context_tokens);
  return fmt::format("this server's KV memory holds {} tokens, of a context of {}", kv_tokens_max,
                     context_tokens);
}

}  // namespace lariat
