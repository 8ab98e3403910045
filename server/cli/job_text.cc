#include "server/cli/job_text.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "planner/explain.h"
#include "proto/enum_text.h"
#include "server/cli/output.h"
#include "server/jobs/transition.h"

namespace legoai::cli {
namespace {

constexpr size_t kBarWidth = 12;
constexpr size_t kNameWidth = 32;

std::string Shortened(const std::string& text, size_t most) {
  return Width(text) <= most ? text : FirstColumns(text, most - 3) + "...";
}

// Why it is as it is: for what its trainers wait, where they do.
const std::string& WhyText(const v1::Job& job) {
  const bool waits = !server::IsFinal(job.state()) && !job.progress().waits().empty();
  return waits ? job.progress().waits() : job.reason();
}

std::string Id(const std::string& name) { return name.substr(name.rfind('/') + 1); }

std::string StepText(const v1::JobProgress& progress) { return absl::StrCat(progress.step(), "/", progress.steps()); }

std::string LossText(const v1::JobProgress& progress) {
  return progress.has_loss() ? absl::StrFormat("%.4f", progress.loss()) : "";
}

// A line of the form "what:  value", where there is a value.
void Line(const char* what, const std::string& value, std::string* text) {
  if (!value.empty()) absl::StrAppend(text, absl::StrFormat("%-16s %s\n", what, value));
}

std::string ResourcesText(const v1::Resources& resources) {
  std::string text = resources.slots() > 0 ? absl::StrCat(resources.slots(), " slots") : "all slots";
  absl::StrAppend(&text, " of pool ", resources.pool(), ", at least ", resources.min_slots());
  if (resources.has_device_type()) absl::StrAppend(&text, ", of type ", resources.device_type());
  return text;
}

std::string ChosenText(const v1::Job& job) {
  if (!job.has_chosen()) return "";
  return absl::StrCat(planner::Summarize(job.chosen().recipe()), " on ", job.world_size(),
                      job.world_size() == 1 ? " rank" : " ranks", ", predicted ", SecondsText(job.chosen().step_time_seconds()),
                      " a step, ", BytesText(job.chosen().peak_memory_bytes()));
}

std::string RetryText(const v1::Job& job) {
  if (!job.has_starts_from()) return job.retry_of();
  const std::string of = job.starts_from().name().substr(0, job.starts_from().name().find("/checkpoints/"));
  return absl::StrCat(job.retry_of(), ", goes on from step ", job.starts_from().step(),
                      of == job.retry_of() ? "" : absl::StrCat(" of ", of));
}

std::string LevelText(const std::string& level) {
  return Colored(level == "error" ? Color::kRed : level == "warning" ? Color::kYellow : Color::kNone, level);
}

// " (ranks 2-3)", where there are others elsewhere.
std::string RanksText(const v1::Attempt& attempt, const v1::Placement& placement) {
  if (attempt.placements_size() < 2) return "";
  const int64_t last = placement.first_rank() + placement.slots() - 1;
  if (last == placement.first_rank()) return absl::StrCat(" (rank ", last, ")");
  return absl::StrCat(" (ranks ", placement.first_rank(), "-", last, ")");
}

std::string AttemptsTable(const google::protobuf::RepeatedPtrField<v1::Attempt>& attempts) {
  Table table({"attempt", "epoch", "<state", "ranks", "<workers", "<started", "from step", "last step", "<error"});
  for (const v1::Attempt& attempt : attempts) {
    std::vector<std::string> workers;
    for (const auto& placement : attempt.placements())
      workers.push_back(absl::StrCat(Id(placement.worker()), " x", placement.slots(), RanksText(attempt, placement)));
    const std::string state = absl::StrCat(attempt.state(), attempt.has_saved_step() ? ", saved" : "");
    table.Add({absl::StrCat(attempt.attempt()), absl::StrCat(attempt.epoch()), state,
               absl::StrCat(attempt.world_size()), absl::StrJoin(workers, ", "), TimeText(attempt.start_time_us()),
               attempt.has_resume_step() ? absl::StrCat(attempt.resume_step()) : "0",
               attempt.has_last_step() ? absl::StrCat(attempt.last_step()) : "", attempt.error().message()});
  }
  return table.empty() ? "" : "\n" + table.Text();
}

}  // namespace

std::string TimeText(int64_t time_us) {
  return time_us == 0 ? "" : absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMicros(time_us), absl::LocalTimeZone());
}

std::string StateText(v1::JobState state, Stream stream) {
  const Color color = state == v1::SUCCEEDED                              ? Color::kGreen
                      : state == v1::FAILED                               ? Color::kRed
                      : state == v1::CANCELLED || state == v1::RESTARTING ? Color::kYellow
                      : state == v1::RUNNING                              ? Color::kCyan
                                                                          : Color::kNone;
  return Colored(color, EnumText(state), stream);
}

std::string JobsTable(const google::protobuf::RepeatedPtrField<v1::Job>& jobs) {
  Table table({"<job", "<state", "<name", "step", "loss", "<submitted", "<why"});
  for (const v1::Job& job : jobs) {
    table.Add({Id(job.name()), StateText(job.state()), Shortened(job.spec().display_name(), kNameWidth),
               job.has_progress() ? StepText(job.progress()) : "", LossText(job.progress()), TimeText(job.create_time_us()),
               WhyText(job)});
  }
  return table.Text();
}

std::string JobText(const v1::Job& job, const google::protobuf::RepeatedPtrField<v1::Attempt>& attempts) {
  std::string text;
  Line("job", job.name(), &text);
  Line("name", job.spec().display_name(), &text);
  Line("state", absl::StrCat(StateText(job.state()), WhyText(job).empty() ? "" : ": ", WhyText(job)), &text);
  Line("queue position", job.has_queue_position() ? absl::StrCat(job.queue_position()) : "", &text);
  Line("error", job.outcome().error().message(), &text);
  Line("submitted", TimeText(job.create_time_us()), &text);
  Line("started", TimeText(job.start_time_us()), &text);
  Line("ended", TimeText(job.end_time_us()), &text);
  Line("retry of", RetryText(job), &text);
  Line("model", job.spec().model().name(), &text);
  Line("dataset", job.spec().dataset().uri(), &text);
  Line("resources", ResourcesText(job.spec().resources()), &text);
  Line("recipe", ChosenText(job), &text);
  if (job.has_progress()) Line("progress", ProgressText(job, nullptr), &text);
  Line("checkpoint", job.has_committed_step() ? absl::StrCat("step ", job.committed_step()) : "", &text);
  Line("steps back", job.steps_back() > 0 ? absl::StrCat(job.steps_back(), ", over damaged checkpoints") : "", &text);
  Line("restarts", job.restarts() > 0 ? absl::StrCat(job.restarts()) : "", &text);
  Line("exported to", job.hf_directory(), &text);
  return text + AttemptsTable(attempts);
}

std::string ProgressText(const v1::Job& job, const v1::PlanningProgress* planning, std::optional<double> seconds_per_step) {
  const v1::JobProgress& progress = job.progress();
  if (planning) {
    std::string text = absl::StrCat("planning: ", WithCommas(planning->space()), " recipes, ", WithCommas(planning->captured()),
                                    " of ", WithCommas(planning->to_capture()), " that may fit are simulated");
    if (planning->has_best_step_seconds()) absl::StrAppend(&text, ", best step ", SecondsText(planning->best_step_seconds()));
    return text;
  }
  std::string text = EnumText(job.state());
  if (!job.has_progress() || progress.steps() == 0) return WhyText(job).empty() ? text : absl::StrCat(text, ": ", WhyText(job));
  const double share = 1.0 * progress.step() / progress.steps();
  absl::StrAppend(&text, "  ", Bar(share, kBarWidth), "  step ", StepText(progress));
  // What matters most comes first: a narrow terminal shows no more than fits.
  const bool over = server::IsFinal(job.state());
  if (!over && !progress.phase().empty() && progress.phase() != "train") absl::StrAppend(&text, "  (", progress.phase(), ")");
  if (!over && !progress.waits().empty()) return absl::StrCat(text, "  waits: ", progress.waits());
  if (progress.has_loss()) absl::StrAppend(&text, "  loss ", LossText(progress));
  if (progress.has_step_seconds() && job.state() == v1::RUNNING) {
    const double each = seconds_per_step.value_or(progress.step_seconds());
    absl::StrAppend(&text, "  ", DurationText(each * static_cast<double>(progress.steps() - progress.step())), " left");
  }
  if (progress.has_validation_loss()) absl::StrAppend(&text, absl::StrFormat("  held-out %.4f", progress.validation_loss()));
  if (progress.has_tokens_per_second()) absl::StrAppend(&text, "  ", CountText(progress.tokens_per_second()), " tokens/s");
  return text;
}

std::string OutcomeText(const v1::Job& job) {
  std::string text = absl::StrCat(job.name(), " ", StateText(job.state()));
  if (job.outcome().has_error()) return absl::StrCat(text, ": ", job.outcome().error().message());
  if (!job.reason().empty() && job.state() != v1::SUCCEEDED) absl::StrAppend(&text, ": ", job.reason());
  if (job.has_progress()) absl::StrAppend(&text, " at step ", StepText(job.progress()));
  if (job.progress().has_loss()) absl::StrAppend(&text, ", loss ", LossText(job.progress()));
  if (job.progress().has_validation_loss()) {
    absl::StrAppend(&text, absl::StrFormat(", held-out loss %.4f", job.progress().validation_loss()));
    if (job.has_unigram_entropy())
      absl::StrAppend(&text, absl::StrFormat(" (unigram entropy of the text %.4f, ratio %.3f)", job.unigram_entropy(),
                                             job.progress().validation_loss() / job.unigram_entropy()));
  }
  if (!job.hf_directory().empty()) absl::StrAppend(&text, "; Hugging Face folder: ", job.hf_directory());
  return text;
}

std::string MeasuredText(const v1::Attempt& attempt) {
  if (!attempt.has_measured_step_seconds()) return "";
  Table table({"<", "predicted", "measured", "error"});
  auto row = [&](const char* what, double said, double was, const std::string& said_text, const std::string& was_text) {
    table.Add({what, said_text, was_text, absl::StrFormat("%+.1f %%", 100 * (said / was - 1))});
  };
  if (attempt.has_predicted_step_seconds()) {
    row("step time", attempt.predicted_step_seconds(), attempt.measured_step_seconds(),
        SecondsText(attempt.predicted_step_seconds()), SecondsText(attempt.measured_step_seconds()));
  } else {
    table.Add({"step time", "not predicted", SecondsText(attempt.measured_step_seconds()), ""});
  }
  if (attempt.has_measured_peak_memory_bytes()) {
    row("peak memory of a rank", attempt.predicted_peak_memory_bytes(), attempt.measured_peak_memory_bytes(),
        BytesText(attempt.predicted_peak_memory_bytes()), BytesText(attempt.measured_peak_memory_bytes()));
  }
  return "\n" + table.Text();
}

namespace {

// One kind of communication over all ranks that take part in it.
struct CollectiveSum {
  int64_t ranks = 0, count = 0, most_exposed_rank = 0;
  double seconds = 0, exposed_seconds = 0, most_exposed_seconds = -1;
};

std::string CollectivesText(const v1::StepMetrics& report) {
  std::map<std::pair<std::string, std::string>, CollectiveSum> sums;
  for (const v1::RankMetrics& rank : report.ranks()) {
    for (const v1::CollectiveTime& one : rank.collectives()) {
      CollectiveSum& sum = sums[{one.collective(), one.group()}];
      ++sum.ranks;
      sum.count = std::max(sum.count, one.count());
      sum.seconds += one.seconds();
      sum.exposed_seconds += one.exposed_seconds();
      if (one.exposed_seconds() <= sum.most_exposed_seconds) continue;
      sum.most_exposed_seconds = one.exposed_seconds();
      sum.most_exposed_rank = rank.rank();
    }
  }
  if (sums.empty()) return "";
  Table table({"<collective", "<group", "a step", "takes", "exposed", "share", "<most exposed"});
  for (const auto& [name, sum] : sums) {
    const double ranks = static_cast<double>(sum.ranks);
    table.Add({name.first, name.second, WithCommas(sum.count), SecondsText(sum.seconds / ranks),
               SecondsText(sum.exposed_seconds / ranks), sum.seconds > 0 ? PercentText(sum.exposed_seconds / sum.seconds) : "",
               absl::StrCat(SecondsText(sum.most_exposed_seconds), " on rank ", sum.most_exposed_rank)});
  }
  return absl::StrCat("\nof each step, the mean of the ranks in it:\n", table.Text());
}

}  // namespace

std::string RanksText(const v1::StepMetrics& report) {
  Table table({"rank", "step", "data", "forward", "backward", "optimizer", "exposed communication", "peak memory"});
  for (const v1::RankMetrics& rank : report.ranks()) {
    table.Add({std::to_string(rank.rank()), SecondsText(rank.step_seconds()), SecondsText(rank.data_seconds()),
               SecondsText(rank.forward_seconds()), SecondsText(rank.backward_seconds()), SecondsText(rank.optimizer_seconds()),
               SecondsText(rank.exposed_communication_seconds()),
               rank.has_peak_memory_bytes() ? BytesText(static_cast<double>(rank.peak_memory_bytes())) : ""});
  }
  return absl::StrCat("\nreport of step ", WithCommas(report.step()), ":\n", table.Text(), CollectivesText(report));
}

std::string TransitionText(const v1::Transition& transition) {
  const std::string from = EnumText(transition.from());
  return absl::StrCat(TimeText(transition.time_us()), "  ", from.empty() ? "" : from + " -> ",
                      StateText(transition.to(), Stream::kErr), transition.reason().empty() ? "" : ": ", transition.reason());
}

std::string LogText(const v1::LogLine& line) {
  const std::string worker = line.worker().empty() ? "" : " " + Id(line.worker());
  return absl::StrCat(TimeText(line.time_us()), line.attempt() == 0 ? "" : absl::StrCat("  attempt ", line.attempt()),
                      line.has_rank() ? absl::StrCat(" rank ", line.rank()) : worker, "  ", LevelText(line.level()),
                      line.level().empty() ? "" : ": ", line.text());
}

}  // namespace legoai::cli
