#include "api/known_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace lariat {
namespace {

using nlohmann::json;

constexpr std::string_view kNot = "is not implemented here";
constexpr std::string_view kOfChat = "is a field of /v1/chat/completions";
constexpr std::string_view kOfCompletions = "is a field of /v1/completions";
constexpr std::string_view kOfResponses =
    "is a field of OpenAI's /v1/responses, which is not implemented here";

// The field passes only if it is absent, null or one of `harmless`, the values that ask for nothing.
void only(FieldReader& fields, std::string_view name, std::initializer_list<json> harmless,
          std::string_view why) {
  const json* v = fields.get(name);
  if (v == nullptr || std::find(harmless.begin(), harmless.end(), *v) != harmless.end()) return;
  fields.refuse(name, why);
}

// Chat's fields. The other endpoint does not even implement what chat does of them.
void refuse_of_chat(FieldReader& fields, bool chat) {
  const auto unless = [&](std::string_view name, std::initializer_list<json> harmless, std::string_view why) {
    only(fields, name, harmless, chat ? why : kOfChat);
  };
  unless("tool_choice", {"auto", "none"}, "only \"auto\" and \"none\" are implemented");
  unless("parallel_tool_calls", {true}, "only true is implemented");
  unless("response_format", {json{{"type", "text"}}}, "only {\"type\": \"text\"} is implemented");
  unless("modalities", {json::array({"text"})}, "only [\"text\"] is implemented");
  unless("functions", {json::array()}, "is deprecated and not implemented; give \"tools\"");
  unless("function_call", {"none"}, "is deprecated and not implemented; give \"tool_choice\"");
  unless("store", {false}, "nothing is stored here; only false is accepted");
  unless("service_tier", {"auto", "default"}, "only \"auto\" and \"default\" are accepted");
  unless("verbosity", {"medium"}, kNot);
  for (const std::string_view name : {"audio", "prediction", "web_search_options", "reasoning_effort",
                                      "moderation", "prompt_cache_options", "prompt_cache_retention"}) {
    unless(name, {}, kNot);
  }
  unless("add_generation_prompt", {true}, "only true is implemented");
}

// What the other endpoint implements and this one does not.
void refuse_of_other_endpoint(FieldReader& fields, bool chat) {
  if (chat) {
    only(fields, "echo", {false}, kOfCompletions);
    only(fields, "best_of", {1}, kOfCompletions);
    only(fields, "suffix", {""}, kOfCompletions);
    only(fields, "prompt", {}, kOfCompletions);
  } else {
    only(fields, "tools", {json::array()}, kOfChat);
    only(fields, "chat_template_kwargs", {json::object()}, kOfChat);
    for (const std::string_view name : {"messages", "top_logprobs", "enable_thinking"}) {
      only(fields, name, {}, kOfChat);
    }
  }
  for (const std::string_view name :
       {"input", "instructions", "max_output_tokens", "previous_response_id", "reasoning", "truncation"}) {
    only(fields, name, {}, kOfResponses);
  }
}

// Of vLLM, SGLang, llama.cpp, Ollama and transformers, what changes the answer: ignoring it would answer
// another question than was asked. These ask for nothing as false, "" or [].
constexpr std::string_view kForeignFields[] = {
    // the form of the answer
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend",
    "guided_whitespace_pattern", "structured_outputs", "structural_tag", "json_schema", "grammar",
    "grammar_lazy", "grammar_triggers", "regex", "ebnf", "format",
    // the choice of tokens
    "use_beam_search", "early_stopping", "bad_words", "bad_words_token_ids", "bad_words_ids",
    "allowed_token_ids", "logits_processors", "custom_logit_processor", "custom_params", "samplers",
    "sampling_seed", "watermark", "dry_sequence_breakers", "options", "vllm_xargs", "lora", "lora_path",
    "lora_request",
    // where it ends
    "stop_token_ids", "stop_regex", "include_stop_str_in_output", "no_stop_trim", "max_new_tokens",
    "num_predict",
    // thinking
    "thinking", "think", "thinking_token_budget", "thinking_budget", "thinking_forced_open",
    // the prompt
    "chat_template", "continue_final_message", "documents", "mm_processor_kwargs", "media_io_kwargs",
    "images", "image_data", "input_ids", "input_embeds", "prompt_embeds", "prompt_token_ids",
    "truncate_prompt_tokens", "truncation_side", "raw", "system", "template",
    // what is told beside the text
    "prompt_logprobs", "return_tokens_as_token_ids", "logprob_token_ids", "return_hidden_states",
    "post_sampling_probs", "return_tokens"};

// Numbers of theirs and the value at which they do nothing.
constexpr std::pair<std::string_view, double> kForeignNumbers[] = {{"length_penalty", 1},
                                                                   {"typical_p", 1},
                                                                   {"tfs_z", 1},
                                                                   {"top_a", 0},
                                                                   {"top_n_sigma", -1},
                                                                   {"repeat_penalty", 1},
                                                                   {"repeat_last_n", 64},
                                                                   {"mirostat", 0},
                                                                   {"mirostat_tau", 5},
                                                                   {"mirostat_eta", 0.1},
                                                                   {"dry_multiplier", 0},
                                                                   {"dry_base", 1.75},
                                                                   {"dry_allowed_length", 2},
                                                                   {"dry_penalty_last_n", -1},
                                                                   {"xtc_probability", 0},
                                                                   {"xtc_threshold", 0.1},
                                                                   {"dynatemp_range", 0},
                                                                   {"dynatemp_exponent", 1},
                                                                   {"smoothing_factor", 0},
                                                                   {"num_beams", 1},
                                                                   {"no_repeat_ngram_size", 0},
                                                                   {"encoder_repetition_penalty", 1},
                                                                   {"epsilon_cutoff", 0},
                                                                   {"eta_cutoff", 0},
                                                                   {"penalty_alpha", 0},
                                                                   {"min_keep", 0},
                                                                   {"n_keep", 0},
                                                                   {"n_predict", -1},
                                                                   {"min_new_tokens", 0},
                                                                   {"t_max_predict_ms", 0},
                                                                   {"n_indent", 0},
                                                                   {"n_probs", 0},
                                                                   {"reasoning_budget", -1}};

// Switches of theirs and what this server does.
constexpr std::pair<std::string_view, bool> kForeignSwitches[] = {{"skip_special_tokens", true},
                                                                  {"spaces_between_special_tokens", true},
                                                                  {"detokenize", true},
                                                                  {"do_sample", true}};

bool asks_for_nothing(const json& v) {
  return v == false || (v.is_string() && v.get_ref<const std::string&>().empty()) ||
         (v.is_array() && v.empty());
}

void refuse_foreign(FieldReader& fields, bool chat) {
  for (const std::string_view name : kForeignFields) {
    const json* v = fields.get(name);
    if (v != nullptr && !asks_for_nothing(*v)) fields.refuse(name, kNot);
  }
  for (const auto& [name, idle] : kForeignNumbers) {
    const json* v = fields.get(name);
    if (v != nullptr && !(v->is_number() && v->get<double>() == idle))
      fields.refuse(name, fmt::format("{}; only {} is accepted", kNot, idle));
  }
  const auto switched = [&](std::string_view name, bool ours) {
    only(fields, name, {ours}, fmt::format("only {} is implemented", ours));
  };
  for (const auto& [name, ours] : kForeignSwitches) switched(name, ours);
  // A chat's template writes its own, a text has the tokenizer's.
  switched("add_special_tokens", !chat);
}

}  // namespace

void refuse_known(FieldReader& fields, ApiKind kind) {
  const bool chat = kind == ApiKind::kChat;
  refuse_of_chat(fields, chat);
  refuse_of_other_endpoint(fields, chat);
  refuse_foreign(fields, chat);
}

}  // namespace lariat
