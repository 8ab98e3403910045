#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/job.h"
#include "server/cli/job_file.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"
#include "server/cli/watch_command.h"

namespace legoai::cli {
namespace {

constexpr char kParent[] = "projects/default";

// One of its own for every call of the command, so that asking again after a broken connection makes no second job.
std::string NewRequestId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::StrFormat("%08x", static_cast<uint32_t>(random())));
  return id;
}

// The server's errors name fields of the request; who wrote JOB.toml knows its keys.
absl::Status InTermsOfFile(const absl::Status& status, const std::string& path) {
  const auto violation = GetFieldViolation(status);
  if (!violation || KeyOf(violation->field()) == violation->field()) return status;
  return Annotate(FieldError(KeyOf(violation->field()), violation->value(), violation->remedy(), status.code()), path);
}

absl::StatusOr<v1::CreateJobRequest> ReadRequest(const Arguments& arguments) {
  v1::CreateJobRequest request;
  ASSIGN_OR_RETURN(auto spec, ReadJobFile(arguments.positional()[0], arguments.recipe_keys()));
  if (arguments.Has("name")) spec.set_display_name(arguments.Text("name"));
  request.set_parent(kParent);
  request.set_request_id(arguments.Has("request-id") ? arguments.Text("request-id") : NewRequestId());
  request.set_validate_only(arguments.Has("check"));
  *request.mutable_spec() = std::move(spec);
  v1::Recipe recipe = request.spec().recipe();
  parallel::FillDefaults(&recipe);
  for (const std::string& note : {WarmUpNote(recipe), ContextNote(recipe, request.spec().model())}) {
    if (!note.empty()) std::fprintf(stderr, "%s\n", note.c_str());
  }
  if (request.spec().dataset().sha256().empty()) {
    std::fprintf(stderr, "note: %s is not visible here; the workers look for it\n", request.spec().dataset().uri().c_str());
  }
  if (request.spec().recipe().job().has_dump_folder()) {
    std::fprintf(stderr, "note: job.dump_folder is for `lego train`; a submitted job's folders are in --runs of the agents\n");
  }
  return request;
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  if (arguments.Has("wait") && arguments.Has("watch")) return FieldError("--wait", "", "and --watch exclude each other");
  if (arguments.Has("check") && (arguments.Has("wait") || arguments.Has("watch")))
    return FieldError("--check", "", "submits nothing that could be waited for");
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  ASSIGN_OR_RETURN(const auto request, ReadRequest(arguments));
  const auto job = client->CreateJob(request);
  if (!job.ok()) return InTermsOfFile(job.status(), arguments.positional()[0]);
  const bool table = arguments.format() == Format::kTable, follow = arguments.Has("wait") || arguments.Has("watch");
  if (request.validate_only()) {
    Print(table ? std::string("everything that can be checked before is in order; nothing was submitted\n")
                : TreeText(arguments.format(), ToTree(*job)));
    return kDone;
  }
  if (follow) {
    std::fprintf(stderr, "submitted %s\n", job->name().c_str());
    return arguments.Has("wait") ? WaitForEnd(*client, job->name(), arguments.format())
                                 : WatchToEnd(*client, job->name(), arguments.format());
  }
  if (!table) {
    Print(TreeText(arguments.format(), ToTree(*job)));
    return kDone;
  }
  Print(absl::StrCat("submitted ", job->name(), "\n"));
  std::fprintf(stderr, "watch it: lego watch %s\n", IdOf(job->name()).c_str());
  return kDone;
}

}  // namespace

Command SubmitCommand() {
  CommandSpec spec;
  spec.name = "submit";
  spec.summary = "Submits a job to a server, which plans it, and trains it as soon as there is room.";
  spec.positional = "JOB.toml";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {{"request-id", "ID", "the same id with the same content gives the same job again; 8 to 64 characters"},
                  {"name", "NAME", "for people; job.description, or the model's name, if it is not given"},
                  {"wait", "", "waits for the end; the exit code is 0 if the job succeeded, 1 otherwise"},
                  {"watch", "", "the same, and shows it live"},
                  {"check", "", "checks everything that can be checked before, and submits nothing"},
                  ServerOption()};
  spec.recipe_keys = true;
  spec.details =
      "JOB.toml has the sections of a recipe beside [resources], [planning] and [policy]; paths in it are made absolute.\n"
      "A list on the command line has commas: --planning.constraints=parallelism.tensor_parallel_degree=1,"
      "training.local_batch_size=4";
  spec.example = "lego submit examples/job.toml --watch";
  return {spec, Run};
}

}  // namespace legoai::cli
