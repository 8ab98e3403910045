#include "worker/launch/pending_commits.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace legoai::launch {

std::string WaitsForVerdict(int64_t step) { return absl::StrCat("the server's word on the checkpoint of step ", step); }

PendingCommits::PendingCommits(int64_t most, Decide decide)
    : most_(static_cast<size_t>(std::max<int64_t>(most, 0))), decide_(std::move(decide)) {}

void PendingCommits::Add(int64_t step, std::vector<std::string> digests) {
  questions_.push_back({step, std::move(digests), std::nullopt});
}

std::vector<PendingCommits::Verdict> PendingCommits::Ask() {
  for (Question& question : questions_) {
    if (!question.verdict) question.verdict = decide_ ? decide_(question.step, question.digests) : absl::OkStatus();
  }
  std::vector<Verdict> verdicts;
  while (!questions_.empty() && questions_.front().verdict) {
    verdicts.push_back({questions_.front().step, *std::move(questions_.front().verdict)});
    questions_.pop_front();
  }
  return verdicts;
}

std::optional<int64_t> PendingCommits::WaitsFor() const {
  if (questions_.size() <= most_) return std::nullopt;
  return questions_.front().step;
}

}  // namespace legoai::launch
