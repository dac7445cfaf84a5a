// Text of others in messages of ours: never more of it than a line.
#pragma once

#include <string>
#include <string_view>

namespace lariat {

// `text` itself if it has at most `bytes_max` bytes (at least 16), else its beginning and its end around
// "...", together at most `bytes_max`. Valid UTF-8 stays valid: no character is cut. Cost: bytes_max.
std::string excerpt(std::string_view text, size_t bytes_max);

}  // namespace lariat
