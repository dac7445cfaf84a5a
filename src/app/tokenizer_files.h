// The tokenizer of a model's files, in a folder or built in.
#pragma once

#include <memory>

#include "base/result.h"
#include "tokenizer/tokenizer.h"
#include "weights/file_set.h"

namespace lariat {

// nullptr if the model has no tokenizer.json (then only token ids can be served); an error if it has a bad
// one.
Result<std::unique_ptr<const Tokenizer>> load_tokenizer(const FileSet& files);

}  // namespace lariat
