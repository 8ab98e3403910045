#include "worker/launch/gang_agreement.h"

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::launch {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string ValueOf(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  if (field->has_presence() && !reflection->HasField(message, field)) return "unset";
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text, all;
  if (!field->is_repeated()) {
    printer.PrintFieldValueToString(message, field, -1, &text);
    return std::string(absl::StripAsciiWhitespace(text));
  }
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    printer.PrintFieldValueToString(message, field, i, &text);
    absl::StrAppend(&all, i > 0 ? ", " : "", absl::StripAsciiWhitespace(text));
  }
  return absl::StrCat("[", all, "]");
}

struct Difference {
  std::string field, first, other;
};

// The first field in which they differ; of sections, the key within.
std::optional<Difference> FirstDifference(const Message& first, const Message& other, const std::string& prefix) {
  const auto* descriptor = first.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const std::string name = absl::StrCat(prefix, field->name());
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated()) {
      const auto difference = FirstDifference(first.GetReflection()->GetMessage(first, field),
                                              other.GetReflection()->GetMessage(other, field), absl::StrCat(name, "."));
      if (difference) return difference;
      continue;
    }
    const std::string a = ValueOf(first, field), b = ValueOf(other, field);
    if (a != b) return Difference{name, a, b};
  }
  return std::nullopt;
}

absl::Status Refuse(const std::string& field, const std::string& other, const std::string& first, const std::string& name,
                    const std::string& remedy) {
  return FieldError(field, other, absl::StrCat("on ", name, ", and ", first.empty() ? "nothing" : first, " on host 0: ", remedy),
                    absl::StatusCode::kFailedPrecondition);
}

absl::Status CheckTexts(const v1::HostHello& first, const v1::HostHello& other, const std::string& name) {
  const std::string remedy = "give each host the same file, by the same path";
  const std::string field = "training.dataset_path";
  if (first.dataset().bytes() != other.dataset().bytes())
    return Refuse(field, absl::StrCat(other.dataset().bytes(), " bytes"), absl::StrCat(first.dataset().bytes(), " bytes"), name,
                  remedy);
  if (first.dataset().sha256() != other.dataset().sha256())
    return Refuse(field, absl::StrCat("SHA-256 ", other.dataset().sha256()), absl::StrCat("SHA-256 ", first.dataset().sha256()),
                  name, remedy);
  if (first.tokenizer_identity() != other.tokenizer_identity())
    return Refuse("model.tokenizer_path", other.tokenizer_identity(), first.tokenizer_identity(), name, remedy);
  return absl::OkStatus();
}

}  // namespace

std::string NameOfHost(int64_t host, const std::string& address) { return absl::StrCat("host ", host, " at ", address); }

absl::Status CheckIsOfRun(const v1::HostHello& first, const v1::HostHello& other, const std::string& name) {
  const std::string remedy = "give all hosts of a gang the same, and another gang another --master-port";
  if (first.hosts() != other.hosts())
    return Refuse("--nnodes", absl::StrCat(other.hosts()), absl::StrCat(first.hosts()), name, remedy);
  const std::string &mine = first.recipe().job().dump_folder(), &its = other.recipe().job().dump_folder();
  return mine == its ? absl::OkStatus() : Refuse("job.dump_folder", its, mine, name, remedy);
}

absl::Status CheckAgrees(const v1::HostHello& first, const v1::HostHello& other, const std::string& name) {
  RETURN_IF_ERROR(CheckIsOfRun(first, other, name));
  if (first.build_version() != other.build_version())
    return Refuse("build_version", other.build_version(), first.build_version(), name, "install the same LegoAI on all hosts");
  if (first.device() != other.device())
    return Refuse("--device", other.device(), first.device(), name, "a gang trains on devices of one kind");
  if (first.ranks() != other.ranks())
    return Refuse("--nproc", absl::StrCat(other.ranks()), absl::StrCat(first.ranks()), name, "each host has as many ranks");
  if (first.fresh() != other.fresh())
    return Refuse("--fresh", other.fresh() ? "given" : "not given", first.fresh() ? "given" : "not given", name,
                  "give it to all hosts or to none");
  if (const auto difference = FirstDifference(first.recipe(), other.recipe(), ""))
    return Refuse(difference->field, difference->other, difference->first, name, "give all hosts the same recipe");
  if (const auto difference = FirstDifference(first.model(), other.model(), "model: "))
    return Refuse(difference->field, difference->other, difference->first, name, "give all hosts the same model");
  return CheckTexts(first, other, name);
}

}  // namespace legoai::launch
