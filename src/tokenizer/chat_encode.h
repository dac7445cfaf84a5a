// A rendered chat to prompt ids.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace lariat {

// Control tokens are found in the template's own text only: nothing that came from the request becomes a
// special token, in part or as a whole. Other added tokens (<think>, <tool_call>) are text by the file's own
// word and are found everywhere; words and merges are those of the joined text. BOS: if the tokenizer adds
// one and the template printed none, one is put in front; if the template printed it, it stays the only one;
// a tokenizer that adds none adds none. Errors of Tokenizer::encode.
Result<std::vector<int32_t>> encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat);

}  // namespace lariat
