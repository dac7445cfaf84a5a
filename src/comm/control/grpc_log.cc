#include "comm/control/grpc_log.h"

#include <grpc/support/log.h>

#include <mutex>

#include "base/log.h"

namespace lariat {

void adopt_grpc_log() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function([](gpr_log_func_args* args) { log_debug("grpc: {}", args->message); });
  });
}

}  // namespace lariat
