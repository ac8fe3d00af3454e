/* A security key of software: what ssh-sk-helper loads in place of libfido2 (PROTOCOL.u2f, sk-api.h
 * of OpenSSH). The key handle is the private key itself. A signature waits for a touch: for the
 * file that SK_TOUCH names, beside which it makes FILE.waits.
 *
 *     gcc -shared -fPIC -o soft_key.so soft_key.c -l:libcrypto.so.3
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of libcrypto, whose headers the tests shall not need. */
typedef void EVP_PKEY;
extern EVP_PKEY *EVP_PKEY_new_raw_private_key(int type, void *engine, const uint8_t *key, size_t n);
extern int EVP_PKEY_get_raw_public_key(const EVP_PKEY *key, uint8_t *public_key, size_t *n);
extern void EVP_PKEY_free(EVP_PKEY *key);
extern void *EVP_MD_CTX_new(void);
extern void EVP_MD_CTX_free(void *context);
extern int EVP_DigestSignInit(void *context, void **pctx, const void *md, void *engine, EVP_PKEY *key);
extern int EVP_DigestSign(void *context, uint8_t *out, size_t *n, const uint8_t *data, size_t size);
extern uint8_t *SHA256(const uint8_t *data, size_t n, uint8_t *out);
extern int RAND_bytes(uint8_t *out, int n);

enum { ED25519_NID = 1087, SK_ED25519 = 1, PRESENCE = 1, UNSUPPORTED = -2, GENERAL = -1 };

struct sk_enroll_response {
  uint8_t flags;
  uint8_t *public_key;
  size_t public_key_len;
  uint8_t *key_handle;
  size_t key_handle_len;
  uint8_t *signature;
  size_t signature_len;
  uint8_t *attestation_cert;
  size_t attestation_cert_len;
  uint8_t *authdata;
  size_t authdata_len;
};

struct sk_sign_response {
  uint8_t flags;
  uint32_t counter;
  uint8_t *sig_r;
  size_t sig_r_len;
  uint8_t *sig_s;
  size_t sig_s_len;
};

struct sk_option;

uint32_t sk_api_version(void) {
  const char *text = getenv("SK_VERSION");
  return text ? (uint32_t)strtoul(text, NULL, 0) : 0x000a0000;
}

int sk_enroll(uint32_t alg, const uint8_t *challenge, size_t challenge_len, const char *application,
              uint8_t flags, const char *pin, struct sk_option **options,
              struct sk_enroll_response **response) {
  (void)challenge, (void)challenge_len, (void)application, (void)pin, (void)options;
  if (alg != SK_ED25519) return UNSUPPORTED;
  struct sk_enroll_response *made = calloc(1, sizeof *made);
  made->flags = flags;
  made->key_handle_len = made->public_key_len = 32;
  made->key_handle = malloc(32);
  made->public_key = malloc(32);
  made->signature_len = 1; /* an attestation that nobody looks at */
  made->signature = calloc(1, 1);
  RAND_bytes(made->key_handle, 32);
  EVP_PKEY *key = EVP_PKEY_new_raw_private_key(ED25519_NID, NULL, made->key_handle, 32);
  int ok = EVP_PKEY_get_raw_public_key(key, made->public_key, &made->public_key_len);
  EVP_PKEY_free(key);
  *response = made;
  return ok ? 0 : GENERAL;
}

static void wait_for_touch(void) {
  const char *path = getenv("SK_TOUCH");
  char waits[4096];
  if (!path) return;
  snprintf(waits, sizeof waits, "%s.waits", path);
  FILE *mark = fopen(waits, "w");
  if (mark) fclose(mark);
  while (access(path, F_OK) != 0) usleep(20000);
}

int sk_sign(uint32_t alg, const uint8_t *data, size_t data_len, const char *application,
            const uint8_t *key_handle, size_t key_handle_len, uint8_t flags, const char *pin,
            struct sk_option **options, struct sk_sign_response **response) {
  (void)pin, (void)options;
  if (alg != SK_ED25519 || key_handle_len != 32) return UNSUPPORTED;
  if (flags & PRESENCE) wait_for_touch();
  uint8_t signed_data[32 + 1 + 4 + 32];
  SHA256((const uint8_t *)application, strlen(application), signed_data);
  signed_data[32] = flags & PRESENCE;
  memcpy(signed_data + 33, "\0\0\0\1", 4);
  SHA256(data, data_len, signed_data + 37);
  struct sk_sign_response *made = calloc(1, sizeof *made);
  made->flags = flags & PRESENCE;
  made->counter = 1;
  made->sig_r_len = 64;
  made->sig_r = malloc(64);
  EVP_PKEY *key = EVP_PKEY_new_raw_private_key(ED25519_NID, NULL, key_handle, 32);
  void *context = EVP_MD_CTX_new();
  int ok = EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1 &&
           EVP_DigestSign(context, made->sig_r, &made->sig_r_len, signed_data, sizeof signed_data) == 1;
  EVP_MD_CTX_free(context);
  EVP_PKEY_free(key);
  *response = made;
  return ok ? 0 : GENERAL;
}

int sk_load_resident_keys(const char *pin, struct sk_option **options, void ***keys, size_t *count) {
  (void)pin, (void)options, (void)keys;
  *count = 0;
  return UNSUPPORTED;
}
