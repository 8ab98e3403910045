#include "server/http/transcoder.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "google/api/annotations.pb.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/status.h"

namespace legoai::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

std::pair<std::string, std::string> MethodAndPath(const google::api::HttpRule& rule) {
  switch (rule.pattern_case()) {
    case google::api::HttpRule::kGet: return {"GET", rule.get()};
    case google::api::HttpRule::kPost: return {"POST", rule.post()};
    case google::api::HttpRule::kPut: return {"PUT", rule.put()};
    case google::api::HttpRule::kPatch: return {"PATCH", rule.patch()};
    case google::api::HttpRule::kDelete: return {"DELETE", rule.delete_()};
    default: return {};
  }
}

absl::Status MergeBody(const std::string& body, Message* request) {
  if (body.empty()) return absl::OkStatus();
  return ParseJson(body, request);
}

// The values of one key as the text of its field: those of a list with commas.
absl::StatusOr<std::string> QueryText(const std::string& key, const std::vector<std::string>& values,
                                      const FieldDescriptor* field) {
  const bool is_list = field != nullptr && field->is_repeated();
  if (values.size() > 1 && !is_list) return FieldError(key, absl::StrJoin(values, ", "), "is given more than once: give it once");
  return absl::StrJoin(values, ",");
}

absl::Status MergeQuery(const std::string& query, const std::map<std::string, std::string>& from_path, Message* request) {
  std::map<std::string, std::vector<std::string>> values;
  const std::vector<std::string> pairs = absl::StrSplit(query, '&', absl::SkipEmpty());
  for (const std::string& pair : pairs) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const auto key = DecodePercent(parts.first, true), value = DecodePercent(parts.second, true);
    if (!key || !value) return FieldError("query", pair, "has a % that is followed by no two hexadecimal digits: write %25");
    values[*key].push_back(*value);
  }
  for (const auto& [key, list] : values) {
    if (from_path.count(key)) return FieldError(key, list[0], "is in the path already: leave it out of the query");
    ASSIGN_OR_RETURN(const auto text, QueryText(key, list, request->GetDescriptor()->FindFieldByName(key)));
    RETURN_IF_ERROR(MergeText(key, text, request));
  }
  return absl::OkStatus();
}

// Path variables are strings at the top of the request; what the body says of them must be the same.
absl::Status MergePath(const std::map<std::string, std::string>& values, Message* request) {
  for (const auto& [key, value] : values) {
    const FieldDescriptor* field = request->GetDescriptor()->FindFieldByName(key);
    const std::string in_body = request->GetReflection()->GetString(*request, field);
    if (!in_body.empty() && in_body != value) return FieldError(key, in_body, "differs from the path: leave it out of the body");
    request->GetReflection()->SetString(request, field, value);
  }
  return absl::OkStatus();
}

absl::Status CheckVariables(const MethodDescriptor* method, const std::string& path) {
  // Every variable stands in braces: {name=...} or {name}.
  for (size_t open = path.find('{'); open != std::string::npos; open = path.find('{', open + 1)) {
    const std::string name = path.substr(open + 1, path.find_first_of("=}", open) - open - 1);
    const FieldDescriptor* field = method->input_type()->FindFieldByName(name);
    if (field == nullptr || field->is_repeated() || field->type() != FieldDescriptor::TYPE_STRING) {
      return absl::InvalidArgumentError(absl::StrCat(method->full_name(), ": ", path, ": ", name, " is no text of its request"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Transcoder> Transcoder::Create(const google::protobuf::ServiceDescriptor* service) {
  Transcoder transcoder;
  for (int i = 0; i < service->method_count(); ++i) {
    const MethodDescriptor* method = service->method(i);
    const google::api::HttpRule& rule = method->options().GetExtension(google::api::http);
    const auto [http_method, text] = MethodAndPath(rule);
    if (text.empty()) return absl::InvalidArgumentError(absl::StrCat(method->full_name(), " has no google.api.http annotation"));
    if (rule.body() != "" && rule.body() != "*") {
      return absl::InvalidArgumentError(
          absl::StrCat(method->full_name(), ": body: \"", rule.body(), "\" is not supported: use \"*\""));
    }
    absl::StatusOr<PathTemplate> path = PathTemplate::Parse(text);
    if (!path.ok()) return Annotate(path.status(), method->full_name());
    RETURN_IF_ERROR(CheckVariables(method, text));
    transcoder.routes_.push_back({method, http_method, *std::move(path), rule.body() == "*"});
  }
  return transcoder;
}

absl::StatusOr<std::pair<const Transcoder::Route*, Transcoder::Values>> Transcoder::FindRoute(const std::string& http_method,
                                                                                              const std::string& path) const {
  for (const Route& route : routes_) {
    auto values = route.http_method == http_method ? route.path.Match(path) : std::nullopt;
    if (values) return std::make_pair(&route, *std::move(values));
  }
  const std::string others = MethodsOf(path);
  if (others.empty()) return absl::NotFoundError(absl::StrCat("no method has the path ", path));
  return absl::UnimplementedError(absl::StrCat(path, " takes ", others, ", not ", http_method));
}

std::string Transcoder::MethodsOf(const std::string& path) const {
  std::set<std::string> methods;
  for (const Route& route : routes_) {
    if (route.path.Match(path)) methods.insert(route.http_method);
  }
  return absl::StrJoin(methods, ", ");
}

absl::StatusOr<const MethodDescriptor*> Transcoder::Find(const std::string& http_method, const std::string& path) const {
  ASSIGN_OR_RETURN(const auto found, FindRoute(http_method, path));
  return found.first->method;
}

absl::StatusOr<Transcoder::Call> Transcoder::Transcode(const std::string& http_method, const std::string& path,
                                                       const std::string& query, const std::string& body) const {
  ASSIGN_OR_RETURN(const auto found, FindRoute(http_method, path));
  const auto& [route, values] = found;
  const Message* prototype = google::protobuf::MessageFactory::generated_factory()->GetPrototype(route->method->input_type());
  Call call{route->method, std::unique_ptr<Message>(prototype->New())};
  absl::Status status = route->has_body ? MergeBody(body, call.request.get()) : MergeQuery(query, values, call.request.get());
  if (status.ok() && route->has_body && !query.empty()) {
    status = FieldError("query", query, "is not read by this method: give its fields in the body");
  }
  if (status.ok()) status = MergePath(values, call.request.get());
  if (!status.ok()) return status;
  return call;
}

}  // namespace legoai::server
