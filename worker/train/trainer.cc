#include "worker/train/trainer.h"

#include <ATen/ops/fill.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "core/model/model_facts.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/comm/status_error.h"
#include "worker/graph/recorder.h"
#include "worker/launch/resume.h"
#include "worker/train/lr_schedule.h"
#include "worker/train/record_step.h"
#include "worker/train/room.h"
#include "worker/train/step_breakdown.h"
#include "worker/train/step_trace.h"
#include "worker/train/trainer_state.h"

namespace legoai::train {

namespace {

using StopRequest = launch::TrainerLink::StopRequest;

// Tags of TensorBoard.
std::vector<std::pair<std::string, double>> Scalars(const v1::StepMetrics& metrics, const LossScale* loss_scale) {
  std::vector<std::pair<std::string, double>> scalars = {{"loss/train", metrics.loss()},
                                                         {"optimizer/learning_rate", metrics.learning_rate()},
                                                         {"time/step_seconds", metrics.step_seconds()},
                                                         {"time/data_seconds", metrics.data_seconds()},
                                                         {"time/tokens_per_second", metrics.tokens_per_second()},
                                                         {"memory/peak_bytes", static_cast<double>(metrics.peak_memory_bytes())}};
  if (metrics.has_grad_norm()) scalars.emplace_back("optimizer/grad_norm", metrics.grad_norm());
  if (loss_scale != nullptr) scalars.emplace_back("optimizer/loss_scale", loss_scale->scale().item<float>());
  if (metrics.has_mfu()) scalars.emplace_back("time/mfu", metrics.mfu());
  if (metrics.has_hfu()) scalars.emplace_back("time/hfu", metrics.hfu());
  for (const v1::RankMetrics& row : metrics.ranks()) {  // rank 0's own
    scalars.emplace_back("time/forward_seconds", row.forward_seconds());
    scalars.emplace_back("time/backward_seconds", row.backward_seconds());
    scalars.emplace_back("time/optimizer_seconds", row.optimizer_seconds());
    scalars.emplace_back("time/exposed_communication_seconds", row.exposed_communication_seconds());
  }
  if (metrics.has_validation_loss()) scalars.emplace_back("loss/validation", metrics.validation_loss());
  return scalars;
}

// What LibTorch's allocators say, of the host and of a device, and the standard library's.
bool IsOutOfMemory(absl::string_view message) {
  return absl::StrContains(message, "can't allocate memory") || absl::StrContains(message, "out of memory") ||
         absl::StrContains(message, "bad_alloc");
}

absl::Status WithRemedyForMemory(const absl::Status& status) {
  if (!IsOutOfMemory(status.message())) return status;
  std::string remedy = "a rank needs less with activation_checkpoint.mode = \"full\", a smaller training.local_batch_size or more "
                       "ranks (`lego plan` ranks recipes that fit)";
  rlimit limit = {};
  if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    absl::StrAppend(&remedy, "; it may take ", limit.rlim_cur / 1'000'000, " MB for itself (--trainer_memory_mb of its agent)");
  return {status.code(), absl::StrCat("out of memory: ", status.message(), ": ", remedy)};
}

}  // namespace

Trainer::Trainer(launch::TrainerLink& link) : link_(link), start_(link.start()) {}

absl::StatusOr<v1::Exit::Cause> Trainer::Run() {
  absl::StatusOr<v1::Exit::Cause> cause = v1::Exit::FAILED;
  RETURN_IF_ERROR(WithRemedyForMemory(comm::CatchStatus([&] {
    RETURN_IF_ERROR(SetUp());
    cause = Loop();
    return cause.status();
  })));
  return cause;
}

absl::Status Trainer::SetUp() {
  ASSIGN_OR_RETURN(const auto resolved, parallel::ResolvedRecipe::Create(start_.recipe(), start_.model(), start_.world_size()));
  recipe_ = resolved.recipe();
  steps_ = recipe_.training().steps();
  RETURN_IF_ERROR(model::CheckWindow(start_.model(), resolved.seq_len(), start_.device() == "cuda" ? v1::CUDA : v1::CPU));
  RETURN_IF_ERROR(link_.SendProgress("connecting", 0, steps_));
  ASSIGN_OR_RETURN(machine_, Machine::Open(start_));
  RETURN_IF_ERROR(MakeRecorder(resolved));
  // A link that is lost shows at the next message.
  const auto say = [this](const std::string& text) { (void)link_.SendLog("info", text); };
  RETURN_IF_ERROR(machine_->Connect(start_, resolved, say));
  link_.SetWaitsIn([directory = start_.run_directory(), rank = start_.rank()] { return CommunicationOf(directory, rank); });
  return MakeStep(resolved);
}

// Here, and not in a rendezvous with its time-out, the ranks wait for the one that waits for room.
absl::Status Trainer::MakeRecorder(const parallel::ResolvedRecipe& resolved) {
  const auto made = DoWhenThereIsRoom(link_, {"the flight record", start_.run_directory()}, nullptr,
                                      [&] { return machine_->MakeRecorder(start_, resolved); });
  RETURN_IF_ERROR(made.status());
  // Who was asked to stop while it waited goes on without one: all stop together, after a step.
  return link_.Meet();
}

// Where it was asked to stop before there was room, there are none.
absl::Status Trainer::MakeTensorboard() {
  if (start_.rank() != 0 || !recipe_.metrics().enable_tensorboard()) return absl::OkStatus();
  return DoWhenThereIsRoom(link_, {"TensorBoard's events", start_.run_directory()}, nullptr,
                           [&] {
                             auto tensorboard =
                                 TensorboardWriter::Create(launch::TensorboardPath(start_.run_directory()),
                                                           absl::StrCat("attempt-", start_.attempt()), absl::Now());
                             if (tensorboard.ok()) tensorboard_ = *std::move(tensorboard);
                             return tensorboard.status();
                           })
      .status();
}

absl::Status Trainer::MakeStep(const parallel::ResolvedRecipe& resolved) {
  RETURN_IF_ERROR(link_.SendProgress("building", 0, steps_));
  ASSIGN_OR_RETURN(train_step_, TrainStep::Build(resolved, machine_->device(), /*materialize=*/true));
  int64_t next_sample = 0;
  const std::string& initial = recipe_.model().initial_load_path();
  if (!start_.has_resume_step() && !initial.empty()) {
    RETURN_IF_ERROR(link_.SendProgress("loading", 0, steps_));
    RETURN_IF_ERROR(LoadInitialWeights(link_, initial, train_step_->optimizer()));
  }
  if (start_.has_resume_step()) {
    RETURN_IF_ERROR(link_.SendProgress("loading", 0, steps_));
    ASSIGN_OR_RETURN(const auto manifest, LoadCheckpoint(link_, train_step_->optimizer()));
    next_sample = manifest.next_sample();
    step_ = saved_step_ = manifest.step();
  }
  RETURN_IF_ERROR(OpenText(resolved, next_sample));
  tokens_per_step_ = resolved.tokens_per_step();
  stage_ = resolved.mesh().IndexOf(mesh::Dim::kPp, start_.rank());
  const auto& ranks = recipe_.metrics().trace_ranks();
  may_trace_ = ranks.empty() ? start_.rank() == resolved.mesh().FirstRankOfStage(stage_)
                             : std::find(ranks.begin(), ranks.end(), start_.rank()) != ranks.end();
  meter_ = std::make_unique<Meter>(start_, tokens_per_step_);
  pending_ = std::make_unique<PendingSaves>(link_, recipe_.checkpoint().keep_latest_k());
  RETURN_IF_ERROR(MakeTensorboard());
  return Compile(resolved);
}

absl::Status Trainer::Compile(const parallel::ResolvedRecipe& resolved) {
  // Compilers take their time, and the limit of a silent rank is that of a start, in a run that goes on as well.
  if (recipe_.compile().enable()) RETURN_IF_ERROR(link_.SendProgress("capturing", 0, steps_, /*total=*/1));
  absl::StatusOr<StepPrograms> captured = CapturePrograms(resolved, machine_->device(), [this] { link_.Advance(0); });
  // Ranks build, load and capture for as long as they take; the first collective must not have to wait for the slowest.
  RETURN_IF_ERROR(link_.Meet());
  std::string warning;
  ASSIGN_OR_RETURN(programs_,
                   AdoptPrograms(std::move(captured), recipe_.compile(), *train_step_, machine_->device(), &warning));
  if (programs_.step != nullptr) {
    for (const std::string& note : programs_.step->notes()) RETURN_IF_ERROR(link_.SendLog("info", note));
  }
  if (warning.empty() || start_.rank() != 0) return absl::OkStatus();
  return link_.SendLog("warning", warning);
}

absl::Status Trainer::OpenText(const parallel::ResolvedRecipe& resolved, int64_t next_sample) {
  // A long text is read for a while, and no silent rank is one that hangs.
  RETURN_IF_ERROR(link_.SendProgress("loading", 0, steps_, /*total=*/1));
  const auto goes_on = [this] {
    link_.Advance(0);
    return false;
  };
  ASSIGN_OR_RETURN(source_, BatchSource::Create(resolved, start_.dataset(), start_.rank(),
                                                launch::TokensPath(start_.run_directory()), next_sample, goes_on));
  return source_->warning().empty() ? absl::OkStatus() : link_.SendLog("warning", source_->warning());
}

absl::StatusOr<v1::Exit::Cause> Trainer::Loop() {
  StopRequest stop = StopRequest::kNone;
  while (step_ < steps_ && stop == StopRequest::kNone && !gave_up_) {
    RETURN_IF_ERROR(DoStep());
    ASSIGN_OR_RETURN(stop, AgreeOnStop());
    const bool last = step_ == steps_ || stop != StopRequest::kNone;
    RETURN_IF_ERROR(AfterStep(last));
    if (stop != StopRequest::kSave) continue;
    RETURN_IF_ERROR(Save());
  }
  RETURN_IF_ERROR(AwaitVerdicts());
  // Whoever leaves first would look like a lost peer to the others.
  RETURN_IF_ERROR(machine_->Max(0).status());
  if (step_ < steps_ || gave_up_ || absl::IsCancelled(verdict_)) return v1::Exit::STOPPED;
  return Export();
}

// The others may be gone by then: the model is read from the checkpoint.
absl::StatusOr<v1::Exit::Cause> Trainer::Export() {
  if (start_.rank() != 0 || !recipe_.checkpoint().last_save_in_hf()) return v1::Exit::FINISHED;
  if (saved_step_ != step_ || !verdict_.ok()) {
    const char* text = "no Hugging Face folder is written: the last checkpoint was denied";
    RETURN_IF_ERROR(link_.SendLog("warning", text));
    return v1::Exit::FINISHED;
  }
  ASSIGN_OR_RETURN(const bool done, DoWhenThereIsRoom(link_, {"the Hugging Face folder", start_.run_directory()}, nullptr,
                                                      [&] { return ExportCheckpoint(link_, step_); }));
  return done ? v1::Exit::FINISHED : v1::Exit::STOPPED;
}

absl::Status Trainer::DoStep() {
  const absl::Time begin = absl::Now();
  StepInputs& inputs = train_step_->inputs();
  RETURN_IF_ERROR(source_->Next(inputs));
  const int64_t step = step_ + 1;
  learning_rate_ = recipe_.optimizer().lr() * LrFactor(recipe_.lr_scheduler(), step, steps_);
  inputs.rng[0].fill_(recipe_.training().seed());
  inputs.rng[1].fill_(step);
  inputs.learning_rate.fill_(learning_rate_);
  RETURN_IF_ERROR(RunStep(step, absl::Now() - begin));
  step_ = step;
  validation_loss_.reset();
  RETURN_IF_ERROR(CheckFinite());
  return link_.SendProgress("train", step_, steps_);
}

absl::Status Trainer::RunStep(int64_t step, absl::Duration data) {
  absl::StatusOr<comm::StepTimes> times = comm::StepTimes();
  StepBreakdown breakdown;
  bool begun = false;
  std::optional<TrainStep::Result> result;
  const auto run = [&](bool traced) -> absl::StatusOr<TrainStep::Result> {
    begun = true;
    const absl::Time begin = absl::Now();
    machine_->timeline().Begin();
    ASSIGN_OR_RETURN(result, programs_.step != nullptr ? programs_.step->Run(traced) : train_step_->Run());
    times = machine_->timeline().End();
    if (times.ok()) breakdown = BreakdownOf(*times, machine_->runtime().groups());
    breakdown.data_ns = absl::ToInt64Nanoseconds(data);
    breakdown.step_ns = absl::ToInt64Nanoseconds(data + (absl::Now() - begin));
    return *result;
  };
  // A collective in the first step of an attempt: all ranks take part, whichever of them record.
  const auto& traced = recipe_.metrics().trace_steps();
  if (std::find(traced.begin(), traced.end(), step) != traced.end()) RETURN_IF_ERROR(train_step_->GatherParameters());
  absl::StatusOr<graph::Trace> trace = graph::Trace();
  if (Traces(step) && programs_.step == nullptr) trace = Record([&] { return run(/*traced=*/true); });
  const absl::Status ran = begun ? trace.status() : run(Traces(step)).status();
  if (!result) return Annotate(ran, absl::StrCat("step ", step));
  loss_ = result->loss.item<float>();
  grad_norm_ = result->grad_norm.item<float>();
  meter_->Add(breakdown);
  if (!times.ok() && !std::exchange(told_unmeasured_, true)) RETURN_IF_ERROR(TellUnmeasured(step, times.status()));
  if (!Traces(step)) return absl::OkStatus();
  const absl::Status measured = trace.ok() ? times.status() : trace.status();
  if (!measured.ok()) return TellUntraced(step, measured);
  // A program is the Trace of its step; the step's own code is recorded as one.
  return WriteTrace(step, programs_.step != nullptr ? programs_.step->trace() : std::as_const(*trace), *times, breakdown);
}

// Errors: those of `run`, and what keeps it from being recorded.
absl::StatusOr<graph::Trace> Trainer::Record(absl::FunctionRef<absl::StatusOr<TrainStep::Result>()> run) {
  graph::Trace trace;
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    graph::Recorder recorder;
    recorder.SetRecording(false);
    TrainStep::Result result;
    ASSIGN_OR_RETURN(trace, RecordStep(recorder, *train_step_, run, &result));
    return absl::OkStatus();
  }));
  return trace;
}

// The training goes on without its figures.
absl::Status Trainer::TellUnmeasured(int64_t step, const absl::Status& why) {
  return link_.SendLog("warning", absl::StrCat("step ", step, " was trained and could not be timed (", why.message(),
                                               "): reports leave out such steps of this rank, which is said once"));
}

absl::Status Trainer::TellUntraced(int64_t step, const absl::Status& why) {
  return link_.SendLog("warning", absl::StrCat("no trace of step ", step, ": ", why.message()));
}

bool Trainer::Traces(int64_t step) const {
  const auto& steps = recipe_.metrics().trace_steps();
  return may_trace_ && std::find(steps.begin(), steps.end(), step) != steps.end();
}

absl::Status Trainer::WriteTrace(int64_t step, const graph::Trace& trace, const comm::StepTimes& times,
                                 const StepBreakdown& breakdown) {
  const std::string path = StepTracePath(start_.run_directory(), step, start_.rank());
  const auto seconds = [](int64_t ns) { return absl::StrCat(1e-9 * static_cast<double>(ns)); };
  const absl::Status written = WriteStepTrace(path, {trace,
                                                     times,
                                                     stage_,
                                                     start_.rank(),
                                                     {{"model", start_.model().name()},
                                                      {"ranks", absl::StrCat(start_.world_size())},
                                                      {"step", absl::StrCat(step)},
                                                      {"step_time_seconds", seconds(breakdown.step_ns)},
                                                      {"data_seconds", seconds(breakdown.data_ns)},
                                                      {"left_out", "nothing"},
                                                      {"made_by", "legoai-trainer"}}});
  // The training goes on without its pictures.
  if (!written.ok()) return TellUntraced(step, written);
  v1::FromTrainer message;
  message.mutable_step_trace()->set_step(step);
  message.mutable_step_trace()->set_path(path);
  return link_.Send(std::move(message));
}

// The loss is the same on every rank, so all stop in the same step, and the last checkpoint is from before.
absl::Status Trainer::CheckFinite() {
  if (std::isfinite(loss_) && std::isfinite(grad_norm_)) return absl::OkStatus();
  if (const LossScale* scale = train_step_->optimizer().loss_scale()) return CheckScaled(*scale);
  return FieldError(
      "optimizer.lr", absl::StrCat(recipe_.optimizer().lr()),
      absl::StrCat("in step ", step_, " the loss is ", loss_, " and the gradient norm ", grad_norm_,
                   ": go on from the last checkpoint with a longer lr_scheduler.warmup_steps or a lower training.max_norm, "
                   "or begin anew (--fresh) with a lower learning rate"),
      absl::StatusCode::kOutOfRange);
}

// Of a step that all ranks skipped.
absl::Status Trainer::CheckScaled(const LossScale& loss_scale) {
  const double scale = loss_scale.scale().item<float>();
  ++skipped_;
  const std::string text = absl::StrCat("step ", step_, " is skipped, since its gradient norm is ", grad_norm_,
                                        ": the loss scale is halved to ", scale, " (skipped so far: ", skipped_, ")");
  if (start_.rank() == 0) RETURN_IF_ERROR(link_.SendLog("warning", text));
  return CheckSkippedStep(loss_, scale, step_);
}

// Largest wish of all ranks, so that all stop at the same step.
absl::StatusOr<launch::TrainerLink::StopRequest> Trainer::AgreeOnStop() {
  ASSIGN_OR_RETURN(const auto agreed, machine_->Max(static_cast<int64_t>(link_.stop_request())));
  return static_cast<StopRequest>(agreed);
}

absl::Status Trainer::AfterStep(bool last) {
  const auto due = [&](int64_t interval) { return interval > 0 && step_ % interval == 0; };
  const bool finished = step_ == steps_;
  if (recipe_.validation().enable() && (finished || due(recipe_.validation().freq()))) {
    RETURN_IF_ERROR(Evaluate());
  }
  if (last || step_ == 1 || validation_loss_ || due(recipe_.metrics().log_freq())) {
    RETURN_IF_ERROR(Report());
  }
  const v1::CheckpointSection& section = recipe_.checkpoint();
  const bool at_end = finished && (section.enable_checkpoint() || section.last_save_in_hf());
  if (at_end || (section.enable_checkpoint() && due(section.interval()))) return Save();
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> Trainer::HeldOutLoss() {
  if (programs_.evaluation == nullptr) return train_step_->Evaluate();
  ASSIGN_OR_RETURN(const auto result, programs_.evaluation->Run());
  return result.loss;
}

// The mean over the tokens of the held-out sequences, so that it depends neither on the batches that they come in nor on the
// layout.
absl::Status Trainer::Evaluate() {
  const int64_t wished = recipe_.validation().steps(), all = source_->validation_batches();
  const int64_t batches = wished > 0 ? std::min(wished, all) : all;
  RETURN_IF_ERROR(link_.SendProgress("evaluate", step_, steps_, batches));
  double sum = 0;
  for (int64_t batch = 0; batch < batches; ++batch) {
    RETURN_IF_ERROR(source_->Validation(batch, train_step_->inputs()));
    const auto loss = HeldOutLoss();
    if (!loss.ok()) return Annotate(loss.status(), absl::StrCat("evaluation after step ", step_));
    sum += loss->item<float>() * static_cast<double>(tokens_per_step_);
    link_.Advance(1);
  }
  validation_loss_ = sum / static_cast<double>(source_->ValidationTokens(batches));
  return absl::OkStatus();
}

absl::Status Trainer::Report() {
  v1::FromTrainer message;
  v1::StepMetrics& metrics = *message.mutable_metrics();
  metrics = meter_->Take(step_, absl::Now());
  metrics.set_loss(loss_);
  if (std::isfinite(grad_norm_)) metrics.set_grad_norm(grad_norm_);
  metrics.set_learning_rate(learning_rate_);
  metrics.set_peak_memory_bytes(machine_->PeakMemoryBytes());
  for (v1::RankMetrics& row : *metrics.mutable_ranks()) row.set_peak_memory_bytes(metrics.peak_memory_bytes());
  if (validation_loss_) metrics.set_validation_loss(*validation_loss_);
  if (tensorboard_ != nullptr) {
    // The training goes on without its pictures.
    const auto scalars = Scalars(metrics, train_step_->optimizer().loss_scale());
    if (absl::Status status = tensorboard_->Write(step_, absl::Now(), scalars); !status.ok()) {
      tensorboard_.reset();
      link_.SendLog("warning", absl::StrCat("no more TensorBoard events are written: ", status.ToString())).IgnoreError();
    }
  }
  RETURN_IF_ERROR(link_.Send(std::move(message)));
  // Once, by one rank: it is the same in each report.
  if (meter_->fault().empty() || start_.rank() != 0 || std::exchange(told_fault_, true)) return absl::OkStatus();
  return link_.SendLog("warning", meter_->fault());
}

absl::Status Trainer::Save() {
  if (saved_step_ == step_) return absl::OkStatus();
  v1::CheckpointManifest facts;
  facts.set_build_version(start_.build_version());
  facts.set_step(step_);
  facts.set_next_sample(source_->next_sample());
  facts.set_seed(recipe_.training().seed());
  facts.set_dataset_sha256(start_.dataset().sha256());
  facts.set_tokenizer_identity(start_.tokenizer_identity());
  *facts.mutable_model() = launch::CanonicalModel(start_.model());
  *facts.mutable_recipe() = recipe_;
  const absl::StatusOr<bool> saved = SaveCheckpoint(link_, facts, train_step_->optimizer(), machine_->runtime(), *pending_,
                                                    [this](int64_t value) { return machine_->Max(value); });
  if (!saved.ok()) return Annotate(saved.status(), absl::StrCat("checkpoint of step ", step_));
  if (*saved) saved_step_ = step_;
  gave_up_ = !*saved;
  return absl::OkStatus();
}

// A training whose last checkpoint may not count has not ended. All ranks hear the same verdicts.
absl::Status Trainer::AwaitVerdicts() {
  verdict_ = link_.AwaitVerdicts();
  const bool heard = verdict_.ok() || absl::IsAborted(verdict_) || absl::IsCancelled(verdict_);
  return heard ? SettleSaves(link_, *pending_) : verdict_;
}

}  // namespace legoai::train
