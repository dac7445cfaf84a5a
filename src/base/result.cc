#include "base/result.h"

namespace lariat {

std::string_view errc_name(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
      return "invalid argument";
    case Errc::kNotFound:
      return "not found";
    case Errc::kUnsupported:
      return "unsupported";
    case Errc::kCorruptData:
      return "corrupt data";
    case Errc::kResourceExhausted:
      return "resource exhausted";
    case Errc::kDeadlineExceeded:
      return "deadline exceeded";
    case Errc::kUnavailable:
      return "unavailable";
    case Errc::kCancelled:
      return "cancelled";
    case Errc::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace lariat
