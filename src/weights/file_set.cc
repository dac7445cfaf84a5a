#include "weights/file_set.h"

#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/problems.h"

namespace lariat {
namespace {

Error bad_name(std::string_view name) {
  return make_error(Errc::kInvalidArgument, "\"" + printable(name) + "\" is not a plain file name");
}

class FolderFiles final : public FileSet {
 public:
  explicit FolderFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::string label() const override { return folder_.string(); }
  std::filesystem::path folder() const override { return folder_; }
  bool contains(std::string_view name) const override {
    std::error_code ec;
    return is_plain_file_name(name) && std::filesystem::exists(folder_ / name, ec);
  }
  Result<MappedFile> open(std::string_view name) const override {
    if (!is_plain_file_name(name)) return bad_name(name);
    return MappedFile::open(folder_ / name);
  }
  Result<std::string> read_text(std::string_view name, size_t bytes_max) const override {
    if (!is_plain_file_name(name)) return bad_name(name);
    return read_file(folder_ / name, bytes_max);
  }

 private:
  const std::filesystem::path folder_;
};

class EmbeddedFiles final : public FileSet {
 public:
  EmbeddedFiles(std::string label, std::span<const EmbeddedFile> files)
      : label_(std::move(label)), files_(files) {}

  std::string label() const override { return label_; }
  std::filesystem::path folder() const override { return {}; }
  bool contains(std::string_view name) const override { return find(name) != nullptr; }
  Result<MappedFile> open(std::string_view name) const override {
    const EmbeddedFile* file = find(name);
    if (!file) return make_error(Errc::kNotFound, path(name) + ": no such embedded file");
    return MappedFile::view(file->bytes, path(name), file->in_image);
  }
  Result<std::string> read_text(std::string_view name, size_t bytes_max) const override {
    LARIAT_ASSIGN(const MappedFile file, open(name));
    if (file.bytes().size() > bytes_max) {
      return make_error(Errc::kResourceExhausted,
                        file.label() + ": larger than the limit of " + std::to_string(bytes_max) + " bytes");
    }
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }

 private:
  std::string path(std::string_view name) const { return label_ + "/" + printable(name); }
  const EmbeddedFile* find(std::string_view name) const {
    for (const EmbeddedFile& f : files_) {
      if (f.name == name) return &f;
    }
    return nullptr;
  }

  const std::string label_;
  const std::span<const EmbeddedFile> files_;
};

}  // namespace

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

std::unique_ptr<FileSet> folder_files(std::filesystem::path folder) {
  return std::make_unique<FolderFiles>(std::move(folder));
}

std::unique_ptr<FileSet> embedded_files(std::string label, std::span<const EmbeddedFile> files) {
  return std::make_unique<EmbeddedFiles>(std::move(label), files);
}

}  // namespace lariat
