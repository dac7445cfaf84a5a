#include "app/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace lariat {
namespace {

constexpr int kWidth = 30;
constexpr int64_t kRedrawMs = 100;

int64_t now_ms() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

}  // namespace

ProgressBar::ProgressBar(std::string what) : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressBar::update(int64_t done, int64_t total) {
  if (!terminal_ || total <= 0) return;
  const int64_t now = now_ms();
  if (done < total && now - last_draw_ms_ < kRedrawMs) return;
  last_draw_ms_ = now;
  const double part = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(part * kWidth);
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f} %", what_, "", filled, "", kWidth - filled, part * 100);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::note(const std::string& text) {
  if (!terminal_ || text.empty()) return;
  fmt::print(stderr, "\r\x1b[K{}: {}", what_, text);
  std::fflush(stderr);
  drawn_ = true;
}

std::function<void(int64_t, int64_t)> ProgressBar::callback() {
  return [this](int64_t done, int64_t total) { update(done, total); };
}

void ProgressBar::finish() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
  drawn_ = false;
}

}  // namespace lariat
