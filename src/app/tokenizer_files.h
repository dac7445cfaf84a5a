// The tokenizer of a model's files, in a folder or built in.
#pragma once

#include <memory>

#include "base/result.h"
#include "tokenizer/tokenizer.h"
#include "weights/file_set.h"

namespace lariat {

// nullptr if the model has no tokenizer.json (then only token ids can be served); an error that names the
// file if it has a bad one, or one with a token that config.json's vocabulary has no room for: what encodes
// to it could not be answered.
Result<std::unique_ptr<const Tokenizer>> load_tokenizer(const FileSet& files);

}  // namespace lariat
