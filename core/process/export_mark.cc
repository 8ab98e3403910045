#include "core/process/export_mark.h"

#include "core/checkpoint/files.h"
#include "core/checkpoint/manifest.h"
#include "core/process/run_directory.h"
#include "proto/json/json.h"
#include "proto/legoai/v1/run.pb.h"
#include "proto/status.h"

namespace legoai::launch {
namespace {

std::string MarkPath(const std::string& folder) { return folder + "/legoai.json"; }

}  // namespace

bool IsExported(const std::string& run_directory, const std::string& checkpoints, int64_t step) {
  const auto text = checkpoint::ReadFile(MarkPath(HuggingFacePath(run_directory)));
  const auto digest = checkpoint::ManifestDigest(checkpoints, step);
  v1::Export mark;
  if (!text.ok() || !digest.ok() || !ParseJson(*text, &mark).ok()) return false;
  return mark.step() == step && mark.checkpoint_sha256() == *digest;
}

absl::Status BeginExport(const std::string& run_directory, std::string* folder) {
  *folder = PartialExportPath(run_directory);
  RETURN_IF_ERROR(checkpoint::RemoveAll(*folder));
  return checkpoint::MakeFolders(*folder);
}

absl::Status FinishExport(const std::string& run_directory, const std::string& checkpoints, int64_t step,
                          std::string_view build_version, const checkpoint::BytesDone& done) {
  ASSIGN_OR_RETURN(const auto digest, checkpoint::ManifestDigest(checkpoints, step));
  v1::Export mark;
  mark.set_step(step);
  mark.set_checkpoint_sha256(digest);
  mark.set_build_version(std::string(build_version));
  const std::string folder = PartialExportPath(run_directory);
  RETURN_IF_ERROR(checkpoint::WriteFile(MarkPath(folder), ToJson(mark) + "\n"));
  return checkpoint::ReplaceFolder(folder, HuggingFacePath(run_directory), done);
}

}  // namespace legoai::launch
