#include <filesystem>
#include <set>
#include <string>
#include <system_error>

#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/process/build_version.h"
#include "core/process/run_directory.h"
#include "planner/explain.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/legoai/v1/checkpoint.pb.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

namespace fs = std::filesystem;

// An error where the store or the disk does not say what is in it: that is no damage.
absl::StatusOr<Tree> CheckpointTree(const std::string& root, int64_t step) {
  Tree tree;
  tree["step"] = step;
  tree["path"] = checkpoint::StepDirectory(root, step);
  const auto manifest = checkpoint::ReadManifest(root, step, "");
  if (absl::IsUnavailable(manifest.status()) || absl::IsPermissionDenied(manifest.status())) return manifest.status();
  if (!manifest.ok()) {
    tree["error"] = std::string(manifest.status().message());
    return tree;
  }
  int64_t bytes = 0;
  std::set<std::string> tensors;
  for (const auto& chunk : manifest->chunks()) {
    bytes += chunk.bytes();
    tensors.insert(chunk.name());
  }
  tree["bytes"] = bytes;
  tree["tensors"] = tensors.size();
  tree["layout"] = planner::Summarize(manifest->recipe());
  tree["build_version"] = manifest->build_version();
  tree["same_build"] = manifest->build_version() == launch::BuildVersion();
  tree["next_sample"] = manifest->next_sample();
  tree["seed"] = manifest->seed();
  tree["error"] = nullptr;
  return tree;
}

void AddRow(const Tree& tree, Table* table) {
  const std::string step = WithCommas(tree["step"].get<int64_t>());
  if (!tree["error"].is_null()) {
    table->Add({step, "", "", "", "damaged: " + tree["error"].get<std::string>()});
    return;
  }
  table->Add({step, BytesText(tree["bytes"].get<double>()), std::to_string(tree["tensors"].get<int64_t>()),
              tree["same_build"].get<bool>() ? "this" : tree["build_version"].get<std::string>(),
              tree["layout"].get<std::string>()});
}

// What a server has committed of a job.
absl::StatusOr<int> OfServer(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto job, FindNamedJob(arguments));
  v1::ListCheckpointsRequest request;
  request.set_parent(job.name);
  ASSIGN_OR_RETURN(const auto response, job.client->ListCheckpoints(request));
  Tree list = Tree::array();
  Table table({"step", "attempt", "epoch", "<committed", "<in", "<damaged"});
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    list.push_back(ToTree(checkpoint));
    table.Add({WithCommas(checkpoint.step()), std::to_string(checkpoint.attempt()), std::to_string(checkpoint.epoch()),
               TimeText(checkpoint.time_us()), checkpoint.directory(), checkpoint.damage()});
  }
  if (arguments.format() != Format::kTable) {
    Print(TreeText(arguments.format(), list));
  } else {
    Print(table.empty() ? "no committed checkpoints of " + job.name + "\n" : table.Text());
  }
  return kDone;
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  const std::string run = arguments.positional()[0];
  std::error_code error;
  if (RefersToJob(arguments)) return OfServer(arguments);
  if (!fs::is_directory(run, error))
    return FieldError("RUN_DIR|JOB", run, "is no folder; name a run's job.dump_folder, or a job", absl::StatusCode::kNotFound);
  ASSIGN_OR_RETURN(const std::string root, launch::CheckpointsOfRun(run));
  ASSIGN_OR_RETURN(const auto steps, checkpoint::ListCheckpoints(root));
  ASSIGN_OR_RETURN(const auto aside, checkpoint::ListPutAside(root));
  Tree list = Tree::array();
  Table table({"step", "size", "tensors", "<build", "<saved with"});
  for (int64_t step : steps) {
    ASSIGN_OR_RETURN(Tree tree, CheckpointTree(root, step));
    list.push_back(std::move(tree));
    AddRow(list.back(), &table);
  }
  if (arguments.format() != Format::kTable) {
    Print(TreeText(arguments.format(), list));
  } else {
    Print(table.empty() ? "no checkpoints in " + root + "\n" : table.Text());
    for (const std::string& name : aside) Print("put aside as damaged: " + root + "/" + name + "\n");
  }
  return kDone;
}

}  // namespace

Command CheckpointsCommand() {
  CommandSpec spec;
  spec.name = "checkpoints";
  spec.summary = "Lists the committed checkpoints of a run, or of a job on a server.";
  spec.positional = "RUN_DIR|JOB";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {ServerOption()};
  spec.details =
      "A word that is no folder, or any with --server, is a job, of which the server lists what it has accepted and is still "
      "there; one that was found damaged stays listed with what is wrong with it, and is never gone on from.";
  spec.example = "lego checkpoints runs/example";
  return {spec, Run};
}

}  // namespace legoai::cli
