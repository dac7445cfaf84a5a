#include "base/file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace lariat {

Result<std::string> read_file(const std::filesystem::path& path, size_t bytes_max) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) {
    return make_error(Errc::kNotFound, path.string() + ": " + (ec ? ec.message() : "not a regular file"));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return make_error(Errc::kNotFound, path.string() + ": " + std::strerror(errno));
  std::string text;
  char chunk[1 << 16];
  while (in.read(chunk, sizeof(chunk)) || in.gcount() > 0) {
    text.append(chunk, static_cast<size_t>(in.gcount()));
    if (text.size() > bytes_max) {
      return make_error(Errc::kResourceExhausted,
                        path.string() + ": larger than the limit of " + std::to_string(bytes_max) + " bytes");
    }
  }
  return text;
}

}  // namespace lariat
