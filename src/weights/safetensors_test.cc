#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/test_files.h"

namespace lariat {
namespace {

using test::raw_safetensors;
using ::testing::HasSubstr;
using ::testing::Not;

Result<SafetensorsFile> parse(const std::string& bytes) {
  return SafetensorsFile::create(MappedFile::view(std::as_bytes(std::span(bytes)), "test.safetensors"));
}

std::string length_prefix(uint64_t n) {
  return std::string(reinterpret_cast<const char*>(&n), 8);
}

void expect_refused(const std::string& bytes, const std::string& why) {
  const auto r = parse(bytes);
  ASSERT_FALSE(r.ok()) << why;
  EXPECT_EQ(r.error().code, Errc::kCorruptData);
  EXPECT_THAT(r.error().message, HasSubstr("test.safetensors"));
  EXPECT_THAT(r.error().message, HasSubstr(why));
}

// C11: length fields that a careless reader adds to, or allocates by.
TEST(Safetensors, HostileHeaderLength) {
  const std::string rest(56, 'x');
  for (const uint64_t n : {uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{4}, uint64_t{200'000'000}}) {
    expect_refused(length_prefix(n) + rest, "header of " + std::to_string(n));
  }
  expect_refused(length_prefix(64 - 7) + rest, "the file has only 56");
  expect_refused(length_prefix(0) + rest, "does not start with '{'");
  expect_refused(length_prefix(1) + rest, "does not start with '{'");
  expect_refused("", "at least 8 bytes");
  expect_refused(std::string(7, '\0'), "at least 8 bytes");
}

TEST(Safetensors, HostileHeaderText) {
  expect_refused(raw_safetensors("[]", ""), "does not start with '{'");
  expect_refused(raw_safetensors(" {}", ""), "does not start with '{'");
  expect_refused(raw_safetensors("{", ""), "invalid JSON");
  expect_refused(raw_safetensors("{} x", ""), "invalid JSON");
  expect_refused(raw_safetensors("{\"a\xFF\":1}", ""), "invalid JSON");
  expect_refused(raw_safetensors(std::string("{}\0{", 4), ""), "NUL");
  std::string deep = "{\"__metadata__\":{\"a\":";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  expect_refused(raw_safetensors(deep, ""), "\"__metadata__\": an array where none belongs");
  std::string objects = "{\"t\":";
  for (int i = 0; i < 100'000; ++i) objects += "{\"dtype\":";
  expect_refused(raw_safetensors(objects, ""), "\"t\": an object where none belongs");
}

TEST(Safetensors, EmptyIsNotAFault) {
  for (const char* header : {"{}", "{\"__metadata__\":{\"format\":\"pt\"}}", "{}     "}) {
    const auto r = parse(raw_safetensors(header, ""));
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_TRUE(r->tensors().empty());
  }
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

TEST(Safetensors, HostileEntries) {
  const std::string data(16, 'd');
  const auto one = [&](const std::string& e) { return raw_safetensors("{" + e + "}", data); };
  expect_refused(one(entry("w", "F33", "[4]", "[0,16]")), "\"w\": unknown dtype \"F33\"");
  expect_refused(one(entry("w", "F32", "[5]", "[0,16]")),
                 "\"w\": dtype and shape make 20 bytes, its range has 16");
  expect_refused(one(entry("w", "F32", "[4]", "[0,17]")), "\"w\": bytes 0..17 are not within the 16");
  expect_refused(one(entry("w", "F32", "[4]", "[16,0]")), "\"w\": bytes 16..0");
  expect_refused(one(entry("w", "F32", "[4]", "[18446744073709551600,18446744073709551615]")),
                 "\"w\": bytes");
  expect_refused(one(entry("w", "F32", "[4]", "[0,18446744073709551616]")), "\"w\"");
  expect_refused(one(entry("w", "F32", "[4]", "[0,16,16]")), "\"w\"");
  expect_refused(one(entry("w", "F32", "[4]", "[0]")), "\"w\": data_offsets needs two");
  expect_refused(one(entry("w", "F32", "[-4]", "[0,16]")), "\"w\": negative");
  expect_refused(one(entry("w", "F32", "[4.0]", "[0,16]")), "\"w\"");
  expect_refused(one(entry("w", "F32", "[4294967296,4294967296]", "[0,16]")),
                 "\"w\": its shape is out of range");
  expect_refused(one(entry("w", "F32", "[9223372036854775808]", "[0,16]")), "\"w\": dimension");
  // 2^62 elements of 4 bytes wrap to 0 in 64 bits.
  expect_refused(one(entry("w", "F32", "[4611686018427387904]", "[0,0]")),
                 "\"w\": its shape is out of range");
  expect_refused(one(entry("w", "F32", "[4]", "[0,8]") + "," + entry("w", "F32", "[2]", "[8,16]")),
                 "\"w\": appears twice");
  expect_refused(one("\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"),
                 "\"w\": duplicate key \"dtype\"");
  expect_refused(one("\"w\":{\"dtype\":\"F32\",\"shape\":[4]}"),
                 "\"w\": needs dtype, shape and data_offsets");
  expect_refused(one("\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16],\"x\":1}"),
                 "unknown key \"x\"");
  expect_refused(one("\"w\":null"), "\"w\": null");
  expect_refused(one("\"w\":[1]"), "\"w\": an array");
  expect_refused(one("\"__metadata__\":{},\"__metadata__\":{}"), "duplicate key \"__metadata__\"");
}

TEST(Safetensors, OverlapsAndHolesAreNamedTogether) {
  const std::string data(32, 'd');
  const auto r = parse(raw_safetensors("{" + entry("a", "F32", "[2]", "[0,8]") + "," +
                                           entry("b", "F32", "[2]", "[4,12]") + "," +
                                           entry("c", "F32", "[2]", "[16,24]") + "}",
                                       data));
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.error().message, HasSubstr("\"b\": overlaps"));
  EXPECT_THAT(r.error().message, HasSubstr("\"c\": 4 bytes before it belong to none"));
  EXPECT_THAT(r.error().message, HasSubstr("the last 8 bytes belong to no tensor"));
}

TEST(Safetensors, EveryEntrysFaultsAreNamed) {
  const std::string data(32, 'd');
  const auto r = parse(raw_safetensors(
      "{" + entry("negative", "F32", "[-3]", "[0,8]") + "," + entry("type", "F33", "[2]", "[8,16]") + "," +
          entry("end", "F32", "[2]", "[28,36]") + "," + entry("float", "F32", "[1.5,[2]]", "[0,8]") + "," +
          entry("object", "F32", "[{\"a\":[-1,null]}]", "[0,8]") + "," +
          entry("pair", "F32", "[2]", "[0,true,4]") +
          ",\"none\":[[{}]],\"odd\":{\"x\":{\"y\":[1]},\"dtype\":3}," + entry("fit", "F32", "[3]", "[0,8]") +
          "}",
      data));
  ASSERT_FALSE(r.ok());
  for (const char* fault :
       {"\"negative\": negative number", "\"type\": unknown dtype \"F33\"", "\"end\": bytes 28..36",
        "\"float\": \"1.5\" is not", "\"float\": an array", "\"object\": an object where",
        "\"pair\": a boolean", "\"pair\": data_offsets needs two", "\"none\": an array",
        "\"odd\": unknown key \"x\"", "\"odd\": a number where", "\"odd\": needs dtype",
        "\"fit\": dtype and shape make 12 bytes"}) {
    EXPECT_THAT(r.error().message, HasSubstr(fault));
  }
  EXPECT_THAT(r.error().message, Not(HasSubstr("more")));
}

TEST(Safetensors, FaultListIsBounded) {
  std::string header = "{";
  for (int i = 0; i < 1000; ++i) {
    header += (i ? "," : "") + entry("w" + std::to_string(i), "F32", "[1]", "[0,5]");
  }
  const auto r = parse(raw_safetensors(header + "}", "12345"));
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.error().message, HasSubstr("and 980 more"));
  EXPECT_LT(r.error().message.size(), 4000u);
}

TEST(Safetensors, ViewsAndUnsupportedTypes) {
  std::string data(8 + 2 + 8 + 32, '\0');
  const float values[2] = {1.5f, -2.0f};
  std::memcpy(data.data(), values, 8);
  const auto r = parse(raw_safetensors(
      "{" + entry("f", "F32", "[1,2]", "[0,8]") + "," + entry("q", "F8_E4M3", "[2]", "[8,10]") + "," +
          entry("s", "I64", "[]", "[10,18]") + "," + entry("deep", "F32", "[1,2,1,2,2]", "[18,50]") + "," +
          entry("none", "F32", "[0,7]", "[50,50]") + "}",
      data));
  ASSERT_TRUE(r.ok()) << r.error().message;
  const auto f = r->find("f");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->shape, (Shape{1, 2}));
  EXPECT_EQ(static_cast<const float*>(f->data)[1], -2.0f);
  EXPECT_FALSE(r->find("q"));
  EXPECT_EQ(r->unusable("q"), "stored as F8_E4M3, which is not supported");
  EXPECT_THAT(r->unusable("deep"), HasSubstr("5 dimensions"));
  ASSERT_TRUE(r->find("s"));
  EXPECT_EQ(r->find("s")->shape, Shape{});
  // 10 is no place for an int64: the reader made an aligned copy.
  EXPECT_EQ(reinterpret_cast<uintptr_t>(r->find("s")->data) % 8, 0u);
  EXPECT_GE(r->copied_bytes(), 8u);
  EXPECT_EQ(r->find("none")->bytes(), 0);
  EXPECT_FALSE(r->find("absent"));
  EXPECT_EQ(r->unusable("absent"), "");
}

TEST(Safetensors, MappedFilesReportChange) {
  const test::TempFolder folder;
  folder.write("m.safetensors", test::f32_safetensors({{"w", {4096}, 1.0f}}));
  auto mapped = MappedFile::open(folder.path() / "m.safetensors");
  ASSERT_TRUE(mapped.ok());
  auto file = SafetensorsFile::create(std::move(*mapped));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(static_cast<const float*>(file->find("w")->data)[4095], 4096.0f);
  file->release("w");
  EXPECT_EQ(static_cast<const float*>(file->find("w")->data)[4095], 4096.0f);
  EXPECT_TRUE(file->file().check_unchanged().ok());
  std::filesystem::resize_file(folder.path() / "m.safetensors", 100);
  EXPECT_FALSE(file->file().check_unchanged().ok());
}

// File-backed pages resident in this process.
int64_t resident_file_pages() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0;
  in >> size >> resident >> shared;
  return shared;
}

TEST(Safetensors, ReleaseGivesResidentPagesBack) {
  const test::TempFolder folder;
  folder.write("m.safetensors", test::f32_safetensors({{"w", {4 << 20}, 0}}));
  auto mapped = MappedFile::open(folder.path() / "m.safetensors");
  ASSERT_TRUE(mapped.ok());
  const auto file = SafetensorsFile::create(std::move(*mapped));
  ASSERT_TRUE(file.ok());
  const auto* w = static_cast<const float*>(file->find("w")->data);
  const int64_t before = resident_file_pages();
  double sum = 0;
  for (int i = 0; i < 4 << 20; i += 256) sum += static_cast<double>(w[i]);
  const int64_t touched = resident_file_pages();
  file->release("w");
  const int64_t after = resident_file_pages();
  EXPECT_GT(sum, 0);
  // Loose bounds: the kernel maps files in folios and counts in batches.
  const int64_t pages = (16 << 20) / sysconf(_SC_PAGESIZE);
  EXPECT_GT(touched - before, pages / 2);
  EXPECT_LT(after - before, pages / 4);
}

TEST(Safetensors, NotAFile) {
  EXPECT_EQ(MappedFile::open("/nonexistent/x").error().code, Errc::kNotFound);
  EXPECT_EQ(MappedFile::open("/tmp").error().code, Errc::kCorruptData);
  EXPECT_EQ(MappedFile::open("/dev/zero").error().code, Errc::kCorruptData);
}

}  // namespace
}  // namespace lariat
