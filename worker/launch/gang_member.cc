#include "worker/launch/gang_member.h"

#include <poll.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/storage.h"
#include "core/data/dataset_facts.h"
#include "core/data/tokenizer.h"
#include "core/flight/flight_ring.h"
#include "core/process/build_version.h"
#include "core/process/checkpoint_roots.h"
#include "core/process/data_roots.h"
#include "core/process/run_directory.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "proto/text.h"
#include "worker/launch/exit_status.h"
#include "worker/launch/gang_address.h"
#include "worker/launch/gang_agreement.h"
#include "worker/launch/gang_link.h"
#include "worker/launch/host_options.h"
#include "worker/launch/host_supervisor.h"
#include "worker/launch/resume.h"
#include "worker/launch/watch_clock.h"

namespace legoai::launch {
namespace {

// Asked to stop before the first host has begun: the others wait for another one in its place.
bool IsAskedToLeave(const StopPipe* stop) { return stop != nullptr && stop->Pending(); }

// What this host knows of the training without the first one.
absl::StatusOr<v1::Start> Describe(const TrainRequest& request, const StopPipe* stop) {
  ASSIGN_OR_RETURN(const auto resolved, parallel::ResolvedRecipe::Create(request.recipe, request.model, WorldSize(request)));
  v1::Start start;
  *start.mutable_recipe() = resolved.recipe();
  *start.mutable_model() = request.model;
  if (request.data_roots) {
    RETURN_IF_ERROR(CheckDataRoots(start.recipe(), *request.data_roots));
  }
  RETURN_IF_ERROR(CheckCheckpointRoots(start.recipe(), start.recipe().job().dump_folder(), request.checkpoint_roots));
  const auto cancel = [stop] { return IsAskedToLeave(stop); };
  ASSIGN_OR_RETURN(*start.mutable_dataset(), data::DatasetFacts(resolved.recipe().training().dataset_path(), cancel));
  ASSIGN_OR_RETURN(const auto tokenizer, data::LoadTokenizer(resolved.recipe().model().tokenizer_path()));
  start.set_tokenizer_identity(tokenizer->Identity());
  return start;
}

std::string FirstHost(const GangPlace& place) { return absl::StrCat("host 0 at ", place.address, ":", place.port); }

// Until the first host is there.
absl::StatusOr<int> Connect(const GangPlace& place, absl::Duration timeout, const StopPipe* stop) {
  const absl::Time until = absl::Now() + timeout;
  while (true) {
    const absl::StatusOr<int> fd = ConnectTo(place.address, place.port, absl::Seconds(5));
    if (fd.ok() || !absl::IsUnavailable(fd.status())) return fd;
    if (IsAskedToLeave(stop)) return absl::CancelledError("asked to stop before the first host was there");
    if (absl::Now() > until)
      return absl::DeadlineExceededError(absl::StrCat(FirstHost(place), " did not answer within ", DurationText(timeout),
                                                      " (comm.init_timeout_seconds): ", fd.status().message()));
    absl::SleepFor(absl::Milliseconds(200));
  }
}

// The error that ended the training, as the first host says it.
absl::Status StatusOfEnd(const v1::Exit& exit) {
  const absl::Status status = ExitStatus(exit);
  absl::Status said(status.code(), exit.message());
  status.ForEachPayload([&](auto url, const absl::Cord& payload) { said.SetPayload(url, payload); });
  return said;
}

// Where checkpoints are in an object store, the run directory of this host has no more than what its own ranks write; they need
// keys of that store, as those of the first host do.
absl::Status MakeOwnFolder(const v1::Start& start) {
  RETURN_IF_ERROR(checkpoint::MakeFolders(start.run_directory() + "/flight"));
  RETURN_IF_ERROR(checkpoint::MakeFolders(LogsPath(start.run_directory())));
  return start.recipe().checkpoint().enable_checkpoint() ? checkpoint::CheckWritable(CheckpointsOf(start)) : absl::OkStatus();
}

// Until the store has room for what the first host waits for, too; then this one joins. What else is wrong with it is told to the
// first host, once it has joined.
absl::Status AwaitRoom(const v1::Start& start, const MemberCallbacks& callbacks, const StopPipe* stop) {
  if (!start.recipe().checkpoint().enable_checkpoint()) return absl::OkStatus();
  const auto waits = [&](const std::string& why) {
    v1::Progress progress;
    progress.set_phase("joining");
    progress.set_waits(why);
    if (callbacks.progress) callbacks.progress(progress);
  };
  return DoWhenThereIsRoom([&] { return checkpoint::CheckWritable(CheckpointsOf(start)); }, waits,
                           [stop] { return IsAskedToLeave(stop); });
}

// A folder on another host's disk may be seen a little later.
absl::Status CheckFolder(const v1::BeginRanks& begin, const GangPlace& place) {
  const std::string& path = begin.start().run_directory();
  if (checkpoint::IsInObjectStore(CheckpointsOf(begin.start()))) return MakeOwnFolder(begin.start());
  for (int look = 0; look < 50; ++look) {
    const auto seen = ReadFile(RunJsonPath(path));
    if (seen.ok() && *seen == begin.run_json()) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(200));
  }
  return FieldError("job.dump_folder", path,
                    absl::StrCat("on this host is not the folder of ", FirstHost(place),
                                 ": all hosts of a gang need one folder that they share, for its checkpoints, or a "
                                 "checkpoint.folder in an object store"),
                    absl::StatusCode::kFailedPrecondition);
}

class Member {
 public:
  Member(const TrainRequest& request, const MemberCallbacks& callbacks, StopPipe* stop, std::unique_ptr<GangLink> link)
      : request_(request), callbacks_(callbacks), stop_(stop), link_(std::move(link)) {}

  absl::StatusOr<MemberOutcome> Run() {
    while (true) {
      clock_.Tick();
      Poll();
      CheckFirstHost();
      if (supervisor_ != nullptr) Watch();
      if (supervisor_ != nullptr) continue;
      if (!lost_.ok()) return lost_;
      if (ended_) return Outcome();
      if (left_) return MemberOutcome{.cause = v1::Exit::STOPPED, .run_directory = RunDirectory()};
    }
  }

 private:
  const GangPlace& place() const { return *request_.gang; }
  std::string RunDirectory() const { return request_.recipe.job().dump_folder(); }

  void Poll() {
    std::vector<pollfd> fds = {{stop_ != nullptr ? stop_->fd() : -1, POLLIN, 0}, {Hears() ? link_->fd() : -1, POLLIN, 0}};
    if (supervisor_ != nullptr) supervisor_->AddDescriptors(&fds);
    const absl::Duration patience = supervisor_ != nullptr ? supervisor_->Patience() : absl::Milliseconds(100);
    if (poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(patience))) <= 0) {
      for (pollfd& fd : fds) fd.revents = 0;
    }
    if (fds[0].revents != 0) PassOn(stop_->Take());
    if (supervisor_ != nullptr) supervisor_->Receive(fds);
    if (fds[1].revents == 0) return;
    v1::ToHost message;
    const absl::Status heard = link_->Receive(&message, [&] { Hear(message); });
    if (!heard.ok() && !ended_) Lose(Annotate(heard, absl::StrCat(FirstHost(place()), ", which coordinates, is gone")));
  }

  // The connection to the first host is open, and it has more to say.
  bool Hears() const { return lost_.ok() && !ended_; }

  // Also before the ranks begin, and after they have ended.
  void CheckFirstHost() {
    if (!Hears() || clock_.now() - heard_ <= kHostTimeout) return;
    Lose(absl::DeadlineExceededError(absl::StrCat(FirstHost(place()), ", which coordinates, was not heard of for ",
                                                  DurationText(kHostTimeout),
                                                  ": it is stopped, or the network is down between it and this host")));
  }

  void Watch() {
    supervisor_->Look();
    if (supervisor_->done()) supervisor_.reset();
  }

  void Hear(const v1::ToHost& message) {
    heard_ = clock_.now();
    if (message.has_begin()) return Begin(message.begin());
    if (message.has_ended()) {
      ended_ = message.ended();
      if (callbacks_.ended) callbacks_.ended();
      EndRanks();  // any that it has not waited for
    } else if (supervisor_ != nullptr && !message.has_alive()) {
      supervisor_->Handle(message);
    }
  }

  void Begin(const v1::BeginRanks& begin) {
    absl::Status status = CheckFolder(begin, place());
    const std::string& resume_directory = begin.start().resume_directory();
    if (status.ok() && !resume_directory.empty()) status = CheckResumeRoots(resume_directory, request_.checkpoint_roots);
    if (status.ok()) status = StartRanks(begin.start());
    heard_ = clock_.now();
    if (status.ok()) return;
    supervisor_.reset();
    v1::FromHost message;
    *message.mutable_done()->mutable_failure() = MakeExit(v1::Exit::FAILED, 0, status);
    link_->Send(message);
  }

  absl::Status StartRanks(const v1::Start& start) {
    supervisor_ = std::make_unique<HostSupervisor>(HostOptionsOf(request_, start), FirstRank(), request_.nproc, clock_,
                                                   [this](const v1::FromHost& message) { Report(message); });
    RETURN_IF_ERROR(supervisor_->Start(/*rendezvous_fd=*/-1, callbacks_.started));
    Log(absl::StrCat("attempt ", start.attempt(), " begins with ranks ", FirstRank(), " to ", FirstRank() + request_.nproc - 1,
                     " on this host; ", LogsPath(start.run_directory()), " has what they print"));
    run_directory_ = start.run_directory();
    return absl::OkStatus();
  }

  int64_t FirstRank() const { return place().host * request_.nproc; }

  void Report(const v1::FromHost& message) {
    if (message.has_answered()) SendFlightRecords();
    if (Hears()) link_->Send(message);
    const v1::FromTrainer& said = message.rank_says();
    if (said.has_progress() && said.rank() == FirstRank() && callbacks_.progress) callbacks_.progress(said.progress());
  }

  // The rings lie in this host's memory; the file that the others see may be older.
  void SendFlightRecords() {
    for (int64_t rank = FirstRank(); rank < FirstRank() + request_.nproc; ++rank) {
      auto dump = comm::ReadFlightRing(FlightRingPath(run_directory_, rank), "");
      if (!dump.ok() || !Hears()) continue;  // it has not come so far
      v1::FromHost message;
      *message.mutable_flight() = *std::move(dump);
      link_->Send(message);
    }
  }

  // To all hosts, by way of the first.
  void PassOn(std::optional<Stop> stop) {
    if (!stop || !Hears()) return;
    if (run_directory_.empty()) {  // its ranks have not begun
      left_ = true;
      return;
    }
    // Of a lease this host's part alone is over: the others hear that it is gone.
    if (request_.lease && *stop == Stop::kKill) return Lose(absl::CancelledError("killed as asked"), /*kill=*/true);
    v1::FromHost message;
    message.mutable_stop()->set_way(*stop == Stop::kSave      ? v1::StopAsked::SAVE
                                    : *stop == Stop::kDiscard ? v1::StopAsked::DISCARD
                                                              : v1::StopAsked::KILL);
    link_->Send(message);
  }

  void Lose(const absl::Status& why, bool kill = false) {
    lost_ = why;
    EndRanks(kill);
  }

  void EndRanks(bool kill = false) {
    if (supervisor_ == nullptr) return;
    v1::ToHost message;
    message.mutable_end()->set_kill(kill);
    supervisor_->Handle(message);
  }

  absl::StatusOr<MemberOutcome> Outcome() const {
    const v1::Exit& exit = ended_->exit();
    if (exit.cause() == v1::Exit::FAILED) return StatusOfEnd(exit);
    return MemberOutcome{exit.cause(), exit.step(), ended_->attempt(), RunDirectory(), ended_->hf_directory()};
  }

  void Log(const std::string& text) {
    if (callbacks_.log) callbacks_.log("note", text);
  }

  const TrainRequest& request_;
  const MemberCallbacks& callbacks_;
  StopPipe* const stop_;
  const std::unique_ptr<GangLink> link_;
  WatchClock clock_;
  std::unique_ptr<HostSupervisor> supervisor_;  // while ranks run
  std::string run_directory_;                   // empty: its ranks have not begun
  absl::Duration heard_;                        // when the first host was last heard of
  absl::Status lost_;                           // why it is no longer heard
  std::optional<v1::GangEnded> ended_;          // it has said so
  bool left_ = false;
};

}  // namespace

v1::HostHello HelloOf(const TrainRequest& request, const v1::Start& start) {
  v1::HostHello hello;
  hello.set_build_version(std::string(BuildVersion()));
  hello.set_hosts(request.gang->hosts);
  hello.set_host(request.gang->host);
  hello.set_ranks(request.nproc);
  hello.set_device(request.gang->device);
  *hello.mutable_recipe() = start.recipe();
  *hello.mutable_model() = CanonicalModel(start.model());
  *hello.mutable_dataset() = start.dataset();
  hello.set_tokenizer_identity(start.tokenizer_identity());
  hello.set_fresh(request.fresh);
  return hello;
}

absl::StatusOr<MemberOutcome> RunMember(const TrainRequest& request, const MemberCallbacks& callbacks, StopPipe* stop) {
  const GangPlace& place = *request.gang;
  const MemberOutcome left = {.cause = v1::Exit::STOPPED, .run_directory = request.recipe.job().dump_folder()};
  const absl::StatusOr<v1::Start> start = Describe(request, stop);
  if (absl::IsCancelled(start.status())) return left;
  if (!start.ok()) return start.status();
  if (absl::IsResourceExhausted(AwaitRoom(*start, callbacks, stop))) return left;
  v1::Progress progress;
  progress.set_phase("joining");
  progress.set_waits(FirstHost(place));
  if (callbacks.progress) callbacks.progress(progress);
  v1::FromHost hello;
  *hello.mutable_hello() = HelloOf(request, *start);
  const absl::StatusOr<int> fd = Connect(place, absl::Seconds(start->recipe().comm().init_timeout_seconds()), stop);
  if (absl::IsCancelled(fd.status())) return left;
  if (!fd.ok()) return fd.status();
  auto link = MakeGangLink<v1::FromHost>(*fd);
  link->Send(hello);
  link->StartBeat();
  progress.set_waits("the hosts of the gang to join");
  if (callbacks.progress) callbacks.progress(progress);
  return Member(request, callbacks, stop, std::move(link)).Run();
}

}  // namespace legoai::launch
