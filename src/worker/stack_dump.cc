// glibc's backtrace() and not libunwind: it looks frames up without a lock since glibc 2.35, so a thread that
// was interrupted inside the dynamic linker cannot deadlock, and libunwind.so would put its own _Unwind_*
// symbols in front of those that our exceptions use.
#include "worker/stack_dump.h"

#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <execinfo.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/file.h"

namespace lariat {
namespace {

constexpr int kFramesMax = 64;
// On top of an interrupted thread's stack: the handler, and the trampoline that called it.
constexpr int kHandlerFrames = 2;
constexpr std::chrono::milliseconds kAnswerTimeout{500};

struct Stack {
  std::array<void*, kFramesMax> frames;
  int count = 0;
  int first = 0;  // what stands above is ours
  std::atomic<bool> done{false};
};

int dump_signal() {
  return SIGRTMAX - 3;
}

void walk_own_stack(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  auto* stack = static_cast<Stack*>(info->si_value.sival_ptr);
  // A stray signal of this number from another process carries no address of ours.
  if (info->si_code == SI_QUEUE && info->si_pid == getpid() && stack != nullptr) {
    stack->count = backtrace(stack->frames.data(), kFramesMax);
    stack->first = kHandlerFrames;
    stack->done.store(true, std::memory_order_release);
  }
  errno = saved_errno;
}

// The thread's stack, or null if it did not answer in time; then the memory is given up, for it may answer
// later.
std::unique_ptr<Stack> ask(pid_t thread) {
  auto stack = std::make_unique<Stack>();
  siginfo_t info;
  std::memset(&info, 0, sizeof info);
  info.si_signo = dump_signal();
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = stack.get();
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, dump_signal(), &info) != 0) return nullptr;
  const auto deadline = std::chrono::steady_clock::now() + kAnswerTimeout;
  while (!stack->done.load(std::memory_order_acquire)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      [[maybe_unused]] const Stack* given_up = stack.release();
      return nullptr;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return stack;
}

std::vector<pid_t> threads_of_this_process() {
  std::vector<pid_t> threads;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored))
    threads.push_back(static_cast<pid_t>(std::strtol(entry.path().filename().c_str(), nullptr, 10)));
  return threads;
}

std::string thread_name(pid_t thread) {
  auto name = read_file(fmt::format("/proc/self/task/{}/comm", thread), 4096);
  if (!name.ok()) return "?";
  std::string text = std::move(name).value();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Symbols {
 public:
  Symbols() : dwfl_(dwfl_begin(&callbacks())) {
    if (dwfl_ == nullptr) return;
    dwfl_linux_proc_report(dwfl_, getpid());
    dwfl_report_end(dwfl_, nullptr, nullptr);
  }
  ~Symbols() {
    if (dwfl_ != nullptr) dwfl_end(dwfl_);
  }
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;

  // frame: a return address, the call standing just before it, or where a thread was interrupted.
  std::string describe(void* frame, bool interrupted) const {
    const auto address = reinterpret_cast<Dwarf_Addr>(frame) - (interrupted ? 0 : 1);
    Dwfl_Module* module = dwfl_ != nullptr ? dwfl_addrmodule(dwfl_, address) : nullptr;
    if (module == nullptr) return fmt::format("{}", frame);
    const char* symbol = dwfl_module_addrname(module, address);
    std::string text = symbol != nullptr ? demangle(symbol) : fmt::format("{}", frame);
    int line = 0;
    Dwfl_Line* at = dwfl_module_getsrc(module, address);
    const char* file = at != nullptr ? dwfl_lineinfo(at, nullptr, &line, nullptr, nullptr, nullptr) : nullptr;
    if (file != nullptr) return text + fmt::format(" at {}:{}", file, line);
    const char* object =
        dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    return text + fmt::format(" in {}", object != nullptr ? object : "?");
  }

 private:
  // Only what the loaded files carry themselves; no look-up that could reach for the network.
  static int no_separate_debuginfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                                   GElf_Word, char**) {
    return -1;
  }
  static const Dwfl_Callbacks& callbacks() {
    static const Dwfl_Callbacks instance{dwfl_linux_proc_find_elf, no_separate_debuginfo, nullptr, nullptr};
    return instance;
  }
  static std::string demangle(const char* symbol) {
    int status = 0;
    char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string name = status == 0 ? text : symbol;
    std::free(text);
    return name;
  }

  Dwfl* dwfl_;
};

std::string paragraph(pid_t thread, const Stack* stack, const Symbols& symbols) {
  std::string text = fmt::format("thread {} ({}):\n", thread, thread_name(thread));
  if (stack == nullptr) return text + "  no answer\n";
  for (int i = stack->first; i < stack->count; ++i) {
    const bool interrupted = stack->first > 0 && i == stack->first;
    text += fmt::format("  #{} {}\n", i - stack->first,
                        symbols.describe(stack->frames[static_cast<size_t>(i)], interrupted));
  }
  return text;
}

}  // namespace

std::string dump_all_stacks() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  auto own = std::make_unique<Stack>();
  own->count =
      backtrace(own->frames.data(), kFramesMax);  // also loads what backtrace needs, before any handler

  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_sigaction = walk_own_stack;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (sigaction(dump_signal(), &action, nullptr) != 0) return "no stack dump: sigaction failed\n";

  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  std::vector<std::pair<pid_t, std::unique_ptr<Stack>>> stacks;
  stacks.emplace_back(self, std::move(own));
  for (const pid_t thread : threads_of_this_process()) {
    if (thread != self) stacks.emplace_back(thread, ask(thread));
  }
  const Symbols symbols;
  std::string text;
  for (const auto& [thread, stack] : stacks) text += paragraph(thread, stack.get(), symbols);
  return text;
}

}  // namespace lariat
