// A one-line progress bar on stderr, drawn only where stderr is a terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lariat {

class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Redraws at most ten times a second. total <= 0 draws nothing.
  void update(int64_t done, int64_t total);
  // A remark instead of a bar.
  void note(const std::string& text);
  // update() as a callback; valid while the bar lives.
  std::function<void(int64_t, int64_t)> callback();
  // Erases the line.
  void finish();

 private:
  std::string what_;
  bool terminal_ = false;
  bool drawn_ = false;
  int64_t last_draw_ms_ = 0;
};

}  // namespace lariat
