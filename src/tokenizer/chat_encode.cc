#include "tokenizer/chat_encode.h"

namespace lariat {

Result<std::vector<int32_t>> encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat) {
  LARIAT_ASSIGN(std::vector<int32_t> ids,
                tokenizer.encode_mixed(chat.text, chat.untrusted, {.add_bos = false}));
  if (tokenizer.adds_bos() && tokenizer.bos_id() && (ids.empty() || ids[0] != *tokenizer.bos_id())) {
    ids.insert(ids.begin(), *tokenizer.bos_id());
  }
  return ids;
}

}  // namespace lariat
