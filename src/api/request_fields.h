// The fields chat and text completions have in common; private to api/.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "api/field_reader.h"
#include "api/request.h"

namespace lariat {

// The body as an object: depth capped, strict UTF-8.
Result<nlohmann::json> parse_body(std::string_view body);

// 404 unless `model` is absent or the served one.
Status check_model(const nlohmann::json& body, const ModelContext& model);

// Sampling, limits and lengths into `request` (its prompt stays empty), stream options into `out`.
void read_common(FieldReader& fields, const ModelContext& model, ParsedRequest& out,
                 GenerateRequest& request);

// max_tokens or max_completion_tokens, absent if neither is given; a fault if both are and differ.
void read_max_tokens(FieldReader& fields, std::optional<int64_t>& out);

// Gives `request` its prompt and clamps max_tokens to what context and KV memory hold beside it.
// `wanted` absent: everything that is left. 400 context_length_exceeded with both numbers in the message.
ApiResult<Ok> place_prompt(std::vector<int32_t> prompt, std::optional<int64_t> wanted, std::string_view param,
                           const ModelContext& model, GenerateRequest& request);

// Ids and creation time, once the prompts are in.
void finish_request(const ModelContext& model, ParsedRequest& out);

}  // namespace lariat
