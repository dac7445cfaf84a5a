// The lariat program as tests run it: by a command line, to its end.
#pragma once

#include <fmt/core.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/test_processes.h"

namespace lariat {

inline const std::string kProgram = LARIAT_TEST_BIN_DIR "/lariat";

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Ran {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// The program with these arguments, to its end or for two minutes.
inline Ran run_lariat(const std::string& args) {
  const test::TempDir dir;
  Ran ran;
  const std::string err = (dir.path() / "err").string();
  std::FILE* pipe = popen(fmt::format("exec timeout -k 5 120 {} {} 2>{}", kProgram, args, err).c_str(), "r");
  if (pipe == nullptr) return ran;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) ran.out.append(buffer, n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) ran.exit_code = WEXITSTATUS(status);
  ran.err = contents(err);
  return ran;
}

}  // namespace lariat
