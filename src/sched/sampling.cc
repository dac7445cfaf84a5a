#include "sched/sampling.h"

namespace lariat {

PlanSampling sampling_of(const GenerateRequest& r) {
  PlanSampling s;
  s.temperature = r.sampling.temperature;
  s.top_k = r.sampling.top_k;
  s.top_p = r.sampling.top_p;
  s.min_p = r.sampling.min_p;
  s.repetition_penalty = r.sampling.repetition_penalty;
  s.presence_penalty = r.sampling.presence_penalty;
  s.frequency_penalty = r.sampling.frequency_penalty;
  s.logit_bias = r.sampling.logit_bias;
  s.top_logprobs = r.top_logprobs;
  return s;
}

}  // namespace lariat
