// A model's files by plain name: a folder, or files that are part of the program.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "weights/mapped_file.h"

namespace lariat {

// True for a name that stays in its folder: not empty, no '/', '\\' or NUL, not "." or "..".
bool is_plain_file_name(std::string_view name);

class FileSet {
 public:
  virtual ~FileSet() = default;

  virtual std::string label() const = 0;  // the folder, for messages
  // The path to the folder; empty for embedded files.
  virtual std::filesystem::path folder() const = 0;
  virtual bool contains(std::string_view name) const = 0;
  // kInvalidArgument for a name that is not plain; kNotFound and the rest as MappedFile::open.
  virtual Result<MappedFile> open(std::string_view name) const = 0;
  // A copy of a small file. kResourceExhausted if it is larger than bytes_max.
  virtual Result<std::string> read_text(std::string_view name, size_t bytes_max) const = 0;
};

struct EmbeddedFile {
  std::string_view name;
  std::span<const std::byte> bytes;
  bool in_image = false;  // read-only data of the program's own file, which the kernel can read again
};

// Never fails: a folder that does not exist contains nothing.
std::unique_ptr<FileSet> folder_files(std::filesystem::path folder);
// `files` and what it points at must outlive the set (they are part of the program).
std::unique_ptr<FileSet> embedded_files(std::string label, std::span<const EmbeddedFile> files);

}  // namespace lariat
