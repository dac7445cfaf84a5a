// lariat run: one prompt, its completion on standard output.
#include <fmt/core.h>

#include <condition_variable>
#include <iostream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/progress.h"
#include "app/serving.h"
#include "base/file.h"

namespace lariat {
namespace {

constexpr size_t kPromptBytesMax = size_t{64} << 20;

struct RunOptions {
  std::string prompt;
  int64_t max_tokens = 0;  // 0: to the context
  std::optional<double> temperature;
  std::optional<uint64_t> seed;
  bool chat = false;
  bool json = false;
};

RunOptions read_run_options(const OptionValues& v, Faults& faults) {
  RunOptions out;
  const auto* prompt = v.find("prompt");
  const auto* file = v.find("file");
  if ((prompt != nullptr) == (file != nullptr)) {
    faults.add("give the prompt with -p TEXT or with -f FILE, one of them");
  } else if (prompt) {
    out.prompt = prompt->text;
  } else if (file->text == "-") {
    out.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    auto text = read_file(file->text, kPromptBytesMax);
    if (text.ok()) {
      out.prompt = std::move(text).value();
    } else {
      faults.add("-f: " + text.error().message);
    }
  }
  out.max_tokens = read_int(v, "max-tokens", 0, {1, INT32_MAX}, faults);
  if (v.find("temperature")) {
    const double t = read_number(v, "temperature", 0, 2, faults);
    out.temperature = t;
  }
  if (v.find("seed"))
    out.seed = static_cast<uint64_t>(read_int(v, "seed", 0, {INT64_MIN, INT64_MAX}, faults));
  out.chat = read_flag(v, "chat");
  out.json = read_flag(v, "json");
  return out;
}

Result<std::vector<int32_t>> prompt_ids(const Served& served, const RunOptions& options) {
  if (!served.codec)
    return make_error(Errc::kInvalidArgument, "the model has no tokenizer.json, so it takes no text");
  if (!options.chat) return served.codec->encode(options.prompt);
  ChatPrompt chat;
  chat.messages = nlohmann::json::array({{{"role", "user"}, {"content", options.prompt}}});
  return served.codec->encode_chat(chat);
}

Result<GenerateRequest> make_request(const Served& served, const RunOptions& options) {
  GenerateRequest request;
  request.id = "run";
  LARIAT_ASSIGN(request.prompt, prompt_ids(served, options));
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t room = served.context.tokens_max() - prompt + 1;
  if (room < 1) {
    return make_error(Errc::kInvalidArgument,
                      fmt::format("the prompt has {} tokens; {}", prompt, served.context.limit_text()));
  }
  request.max_tokens =
      static_cast<int32_t>(options.max_tokens > 0 ? std::min(options.max_tokens, room) : room);
  const SamplingDefaults& d = served.context.defaults;
  SamplingSettings& s = request.sampling;
  s.temperature =
      options.temperature ? static_cast<float>(*options.temperature) : d.temperature.value_or(1.0f);
  s.top_k = d.top_k.value_or(0);
  s.top_p = d.top_p.value_or(1.0f);
  s.min_p = d.min_p.value_or(0.0f);
  s.repetition_penalty = d.repetition_penalty.value_or(1.0f);
  request.end_ids = d.end_ids;
  request.seed = options.seed;
  return request;
}

// What the engine's thread leaves for the main thread.
struct Answer {
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;
  std::vector<int32_t> ids;
  FinishReason finish = FinishReason::kNone;
  Error error;
  Usage usage;
  bool done = false;
};

void take(Answer& answer, const GenerationEvents& events) {
  const std::lock_guard lock(answer.mutex);
  for (const ChoiceEvent& e : events.choices) {
    answer.text += e.text;
    answer.ids.insert(answer.ids.end(), e.token_ids.begin(), e.token_ids.end());
    if (e.finish != FinishReason::kNone) answer.finish = e.finish;
    if (e.finish == FinishReason::kError) answer.error = e.error;
  }
  if (events.done) {
    answer.done = true;
    answer.usage = events.usage;
  }
  answer.changed.notify_all();
}

// Prints text as it comes unless JSON was asked for; until then, on a terminal, how far the prompt is.
void follow(Answer& answer, const Engine& engine, bool print) {
  ProgressBar bar("prompt");
  size_t printed = 0;
  std::unique_lock lock(answer.mutex);
  while (true) {
    answer.changed.wait_for(lock, std::chrono::milliseconds(200),
                            [&] { return answer.done || answer.text.size() > printed; });
    const std::string fresh = answer.text.substr(printed);
    const bool done = answer.done;
    lock.unlock();
    if (fresh.empty() && !done) {
      const EngineState state = engine.state();
      if (!state.requests.empty())
        bar.update(state.requests[0].prefilled_tokens, state.requests[0].prompt_tokens);
    } else {
      bar.finish();
      if (print) {
        fmt::print("{}", fresh);
        std::fflush(stdout);
      }
    }
    lock.lock();
    printed += fresh.size();
    if (done && printed == answer.text.size()) return;
  }
}

}  // namespace

Result<int> cmd_run(const OptionValues& values) {
  Faults faults(values);
  const ModelOptions model = read_model_options(values, faults);
  const LayoutOptions layout = read_layout_options(values, faults);
  const RunOptions options = read_run_options(values, faults);
  if (!faults.empty()) return faults.error();
  LARIAT_ASSIGN(const auto served, start_served(model, layout, ServeOptions{}));
  LARIAT_ASSIGN(GenerateRequest request, make_request(*served, options));
  LARIAT_RETURN_IF_ERROR(wait_until_ready(*served->engine));

  Answer answer;
  LARIAT_RETURN_IF_ERROR(served->engine->submit(
      std::move(request), [&](const GenerationEvents& events) { take(answer, events); }));
  follow(answer, *served->engine, !options.json);
  served->engine->stop(std::chrono::milliseconds(0));
  if (answer.finish == FinishReason::kError) return answer.error;
  if (options.json) {
    nlohmann::ordered_json out;
    out["text"] = answer.text;
    out["token_ids"] = answer.ids;
    out["prompt_tokens"] = answer.usage.prompt_tokens;
    out["completion_tokens"] = answer.usage.completion_tokens;
    out["finish_reason"] = answer.finish == FinishReason::kLength ? "length" : "stop";
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("\n");
  }
  return 0;
}

}  // namespace lariat
