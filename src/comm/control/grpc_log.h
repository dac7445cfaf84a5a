// gRPC's own log lines become ours, at debug: what matters of them comes back as an error value anyway.
#pragma once

namespace lariat {

// Any number of times, from any thread.
void adopt_grpc_log();

}  // namespace lariat
