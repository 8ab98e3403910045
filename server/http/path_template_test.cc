#include "server/http/path_template.h"

#include "gtest/gtest.h"

namespace legoai::server {
namespace {

using Values = std::map<std::string, std::string>;

std::optional<Values> Match(const char* text, std::string_view path) {
  const auto parsed = PathTemplate::Parse(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? parsed->Match(path) : std::nullopt;
}

TEST(PathTemplate, TakesVariablesOverSegments) {
  EXPECT_EQ(Match("/v1/{name=projects/*/jobs/*}", "/v1/projects/a/jobs/b"), (Values{{"name", "projects/a/jobs/b"}}));
  EXPECT_EQ(Match("/v1/{parent=projects/*}/jobs", "/v1/projects/default/jobs"), (Values{{"parent", "projects/default"}}));
  EXPECT_EQ(Match("/v1/{name=projects/*/jobs/*/plan}", "/v1/projects/a/jobs/b/plan"),
            (Values{{"name", "projects/a/jobs/b/plan"}}));
  EXPECT_EQ(Match("/v1/{a}/{b=x/*}", "/v1/1/x/2"), (Values{{"a", "1"}, {"b", "x/2"}}));
  EXPECT_EQ(Match("/v1/workers", "/v1/workers"), Values());
}

TEST(PathTemplate, TellsVerbsApart) {
  const char* watch = "/v1/{name=projects/*/jobs/*}:watch";
  EXPECT_EQ(Match(watch, "/v1/projects/a/jobs/b:watch"), (Values{{"name", "projects/a/jobs/b"}}));
  EXPECT_FALSE(Match(watch, "/v1/projects/a/jobs/b"));
  EXPECT_FALSE(Match(watch, "/v1/projects/a/jobs/b:cancel"));
  EXPECT_FALSE(Match("/v1/{name=projects/*/jobs/*}", "/v1/projects/a/jobs/b:watch"));
}

TEST(PathTemplate, DecodesSegmentsOneByOne) {
  EXPECT_EQ(Match("/v1/{name=workers/*}", "/v1/workers/a%20b"), (Values{{"name", "workers/a b"}}));
  for (const char* path : {"/v1/workers/a%2Fb", "/v1/workers/a%00b", "/v1/workers/%zz", "/v1/workers/a%2", "/v1/workers/",
                           "/v1/workers", "/v1//workers/a", "/v1/workers/a/", "v1/workers/a", ""}) {
    EXPECT_FALSE(Match("/v1/{name=workers/*}", path)) << path;
  }
}

TEST(PathTemplate, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"", "v1/x", "/v1/{name=**}", "/v1//x", "/v1/{name=a*}", "/v1/{name", "/v1/"}) {
    EXPECT_FALSE(PathTemplate::Parse(text).ok()) << text;
  }
}

TEST(DecodePercent, PlusIsASpaceInQueriesOnly) {
  EXPECT_EQ(DecodePercent("a+b%2b"), "a+b+");
  EXPECT_EQ(DecodePercent("a+b%2B", true), "a b+");
  EXPECT_FALSE(DecodePercent("%"));
}

}  // namespace
}  // namespace legoai::server
