// Tells how Express understood a request.
'use strict'

const cookies = require('cookie-parser')
const express = require('express')
const jwt = require('jsonwebtoken')
const { ExtractJwt } = require('passport-jwt')

const secret = 'a secret of at least thirty-two bytes'
const token = ExtractJwt.fromAuthHeaderAsBearerToken()
const app = express()
let secrets = 0

// Express matches paths without regard to case, and with or without a slash at the end, unless it is told not to.
if (process.argv[3] !== 'lax') {
  app.set('case sensitive routing', true)
  app.set('strict routing', true)
}
app.use(cookies())

function subject (request) {
  try {
    return jwt.verify(token(request), secret, { algorithms: ['HS256'] }).sub
  } catch {
    return ''
  }
}

function headers (request) {
  const all = [...Object.entries(request.headers), ...Object.entries(request.trailers)]
  return all.map(([name, value]) => `${name}: ${value}`).sort().join(' | ')
}

function told (route) {
  return (request, response) => {
    secrets += route === 'secret' ? 1 : 0
    response.status(route === 'none' ? 404 : 200).type('text/plain').send(
      `route=${route}\nmethod=${request.method}\nkey=${request.get('x-api-key') ?? ''}\n` +
      `session=${request.cookies.session ?? ''}\nparameter=${request.query.key ?? ''}\nsub=${subject(request)}\nhost=${request.hostname}\n` +
      `address=${request.get('x-forwarded-for') ?? ''}\nheaders=${headers(request)}\nsecrets=${secrets}\n`)
  }
}

app.all('/', told('root'))
app.post('/orders/export', told('export'))
app.get('/admin/*', told('admin'))
app.all('/secret', told('secret'))
app.use(told('none'))
app.use((error, request, response, next) => response.status(400).type('text/plain').send('route=none\n'))
app.listen(Number(process.argv[2]), '127.0.0.1')
