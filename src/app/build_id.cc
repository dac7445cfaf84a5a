// The linker's build id of this program: head and ranks that carry the same one were built together.
#include <elf.h>
#include <fmt/core.h>
#include <link.h>

#include <bit>
#include <cstring>

#include "app/rank_launch.h"
#include "app/version.h"

namespace lariat {
namespace {

constexpr size_t kNoteAlign = 4;

size_t aligned(size_t n) {
  return (n + kNoteAlign - 1) / kNoteAlign * kNoteAlign;
}

// The hexadecimal id in one segment of notes; empty if it has none.
std::string id_in_notes(const char* notes, size_t bytes) {
  size_t at = 0;
  while (at + sizeof(ElfW(Nhdr)) <= bytes) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof(note));
    const size_t name = at + sizeof(note);
    const size_t value = name + aligned(note.n_namesz);
    const size_t next = value + aligned(note.n_descsz);
    if (next > bytes) return {};
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof("GNU") &&
        !std::memcmp(notes + name, "GNU", sizeof("GNU"))) {
      std::string id;
      for (size_t i = 0; i < note.n_descsz; ++i)
        id += fmt::format("{:02x}", static_cast<unsigned char>(notes[value + i]));
      return id;
    }
    at = next;
  }
  return {};
}

// The first object of the list is the program itself.
int first_object(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const std::string id =
        id_in_notes(std::bit_cast<const char*>(info->dlpi_addr + segment.p_vaddr), segment.p_memsz);
    if (!id.empty()) *static_cast<std::string*>(out) = id;
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(first_object, &id);
  return fmt::format("lariat {} {}", kVersion, id.empty() ? "unknown" : id);
}

}  // namespace lariat
